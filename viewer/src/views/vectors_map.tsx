// Words as points: the two directions in which they differ most.
import { api, type Point } from "../data/api";
import { useResource } from "../data/resource";
import type { Model } from "../data/types";
import type { Surface } from "../draw/surface";
import { cut, extent } from "../math";
import { go, link } from "../state";
import { Loaded, useWidth } from "../ui/basic";
import { Exports } from "../ui/exports";
import { PictureCanvas } from "../ui/picture";
import { Ask } from "./vectors";
import { namesBeside } from "./map_names";

const FIRST = "man woman king queen boy girl dog cat street road river house red blue one two";
const HEIGHT = 420;

export function WordMap({ model }: { model: Model }) {
  const words = link.value.words ?? (model.words?.length ? model.words.join(" ") : FIRST);
  const asked = link.value.words !== undefined || Boolean(model.words?.length);
  const list = words.split(/\s+/).filter(Boolean);
  const data = useResource(asked && list.length > 1 ? `${model.id} ${words}` : null, () => api.map(model.id, list));
  return (
    <section aria-label="Map of words">
      <h3>Map</h3>
      <Ask key={words} fields={[["Words, with spaces between", words]]} button="Draw" onAsk={([value]) => go({ words: value })} />
      {asked ? null : <p class="hint">Press Draw to see these words as points.</p>}
      {list.length < 2 ? (
        <p>Give two words or more.</p>
      ) : (
        <Loaded from={data} idle={!asked}>
          {(value) => <MapPicture points={value.points} asked={list} />}
        </Loaded>
      )}
    </section>
  );
}

function MapPicture({ points, asked }: { points: Point[]; asked: string[] }) {
  const [box, room] = useWidth();
  const width = Math.max(240, Math.min(room, 900));
  const paint = (surface: Surface) => {
    const [x0, x1] = extent(points.map((point) => point.x));
    const [y0, y1] = extent(points.map((point) => point.y));
    surface.box(1, 1, width - 2, HEIGHT - 2, { stroke: surface.paper.line });
    const dots = points.map((point) => ({
      x: 50 + ((point.x - x0) / (x1 - x0 || 1)) * (width - 110),
      y: HEIGHT - 24 - ((point.y - y0) / (y1 - y0 || 1)) * (HEIGHT - 48),
      text: cut(point.word, 16),
      own: asked.includes(point.word),
    }));
    for (const { x, y, own } of dots) surface.dot(x, y, 4, { fill: own ? surface.paper.accent : surface.paper.soft });
    for (const { text, x, y, anchor, at } of namesBeside(dots, width))
      surface.text(x, y, text, { anchor, size: 13, colour: dots[at].own ? surface.paper.ink : surface.paper.soft });
  };
  return (
    <div ref={box}>
      {room > 0 ? (
        <PictureCanvas
          width={width}
          height={HEIGHT}
          paint={paint}
          label={`Map of ${points.length} words: ${points
            .slice(0, 30)
            .map((point) => cut(point.word, 20))
            .join(", ")}`}
        />
      ) : null}
      <Exports
        name="map"
        picture={() => ({ width, height: HEIGHT, paint })}
        csv={() => [["word", "x", "y"], ...points.map((point) => [point.word, point.x, point.y])]}
        json={() => points}
      />
    </div>
  );
}
