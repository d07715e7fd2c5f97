"""streamkit beside packages of others that applications use with it. They are in the extra `integrations`."""
