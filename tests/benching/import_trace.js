// Reads a trace as the trace viewer of Chrome (catapult) does, and prints what it understood as JSON.
// node import_trace.js trace_viewer_full.html trace.json
// The page is one script of modules; those that draw need a browser and fail here, those that import do not.
"use strict";
const fs = require("fs"), vm = require("vm");
const page = fs.readFileSync(process.argv[2], "utf8");
const START = "const global=this.window||this.global;";
const at = page.indexOf(START + "this.tr=");
const script = page.slice(at + START.length, page.lastIndexOf("</script>"));
const context = vm.createContext({ console });
vm.runInContext("var global = this; var isVinn = true; var window = {};", context);  // isVinn: its word for no browser
for (const module of script.split("'use strict';")) {
  try { vm.runInContext("'use strict';\n" + module, context); } catch (e) { /* draws */ }
}
context.text = fs.readFileSync(process.argv[3], "utf8");
console.log(vm.runInContext(`
  const model = new tr.Model();
  new tr.importer.Import(model).importTraces([text]);
  const slice = s => ({ name: s.title, start: s.start, ms: s.duration, inside: s.parentSlice ? s.parentSlice.title : null });
  JSON.stringify({
    warnings: model.importWarnings.map(w => w.type + ": " + w.message),
    tracks: model.getAllThreads().map(t => ({ process: t.parent.name, name: t.name, slices: t.sliceGroup.slices.map(slice) })),
    counters: model.getAllCounters().map(c => ({ name: c.name, series: c.series.map(s => s.name), values: c.timestamps.length })),
    instants: model.instantEvents.map(e => ({ name: e.title, start: e.start })),
    start: model.bounds.min, end: model.bounds.max,
  })`, context));
