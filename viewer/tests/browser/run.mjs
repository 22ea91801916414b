// Browser tests against the mock: npm run browser.
import test, { after, describe } from "node:test";
import { behaviour } from "./behaviour.mjs";
import { looks } from "./looks.mjs";
import { speed } from "./speed.mjs";
import { open } from "./tools.mjs";

const place = await open();

await test("512 tokens, 6 x 8 heads: overview, any head, heap; a beam of 1,000 nodes", (t) => speed(t, place));

// The others share the processor.
describe("the page", { concurrency: 3 }, () => {
  after(() => place.close());
  looks(place);
  behaviour(place);
});
