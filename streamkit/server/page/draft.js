// What is written and not sent: a reload of the page keeps it.

const KEY = "streamkit-draft";

export class Draft {
  constructor(field) {
    this.field = field;
  }

  save() {
    store((storage) => storage.setItem(KEY, this.field.value));
  }

  /** What was sent is no draft any more; what was written since stays one. */
  clear() {
    store((storage) => this.field.value || storage.removeItem(KEY));
  }

  restore() {
    store((storage) => (this.field.value ||= storage.getItem(KEY) ?? ""));
  }
}

function store(action) {
  try {
    action(sessionStorage);
  } catch {
    // A browser may refuse to store anything.
  }
}
