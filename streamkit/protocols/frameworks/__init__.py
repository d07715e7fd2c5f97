"""The event streams of agent frameworks, as sources: `sk.stream(agent.run(…, stream=True))`.

They are only read: no request has their form, so there is no encoder and no `to_input`. What a framework yields are objects of its own.
Each module has the decoder of one framework: `item_of` makes a dict of an object, with what is read of it, and `feed` makes events of
dicts. So a recording has dicts, and is read where the framework is not installed. No framework is imported here: `shape` finds the
framework of an object by the module of its class.
"""
