// Browsers start no Worker for a page that is opened from disk, and the search needs one. There it runs in a
// hidden frame: what the two say to each other is passed on as events.
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inner = (this.inner = this.frame.contentWindow);
      // A document written here stays; the empty one that a frame begins with is replaced later.
      inner.document.open();
      inner.document.write("<!doctype html><body></body>");
      inner.document.close();
      inner.postMessage = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      };
      const run = (source) =>
        new Promise((done, failed) => {
          const script = inner.document.createElement("script");
          Object.assign(script, { src: source, onload: done, onerror: failed });
          inner.document.body.append(script);
        });
      inner.importScripts = (...sources) => sources.reduce((before, one) => before.then(() => run(one)), Promise.resolve());
      this.ready = run(new URL(url, location.href).href);
    }
    postMessage(data) {
      this.ready.then(() => this.inner.dispatchEvent(new this.inner.MessageEvent("message", { data })));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
