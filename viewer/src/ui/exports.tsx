// The row of export buttons under a picture.
import { useState } from "preact/hooks";
import type { Painter } from "../draw/surface";
import { save, toCsv, toJson, toSvg, type Cell } from "../export";
import { dark } from "../theme";
import { drawn } from "./picture";

export interface Picture {
  width: number;
  height: number;
  paint: Painter;
}

export function Exports(props: { name: string; picture?: () => Picture; csv?: () => Cell[][]; json?: () => unknown }) {
  const [copied, setCopied] = useState("");
  const name = `regard-${props.name}`;
  const { picture, csv, json } = props;
  const png = () => {
    const { width, height, paint } = picture!();
    drawn(width, height, paint, dark.value, 2).toBlob((blob) => blob && save(`${name}.png`, blob, "image/png"), "image/png");
  };
  const svg = () => {
    const { width, height, paint } = picture!();
    save(`${name}.svg`, toSvg(width, height, paint, dark.value), "image/svg+xml");
  };
  const copy = () =>
    navigator.clipboard.writeText(location.href).then(
      () => setCopied("copied"),
      () => setCopied("not allowed: copy the address of this page"),
    );
  return (
    <div class="exports" role="group" aria-label="Save this">
      <span aria-hidden="true">Save</span>
      {picture ? (
        <button type="button" onClick={png}>
          PNG
        </button>
      ) : null}
      {picture ? (
        <button type="button" onClick={svg}>
          SVG
        </button>
      ) : null}
      {csv ? (
        <button type="button" onClick={() => save(`${name}.csv`, toCsv(csv()), "text/csv")}>
          CSV
        </button>
      ) : null}
      {json ? (
        <button type="button" onClick={() => save(`${name}.json`, toJson(json()), "application/json")}>
          JSON
        </button>
      ) : null}
      <button type="button" onClick={copy}>
        Copy link
      </button>
      <span role="status" class="copied">
        {copied}
      </span>
    </div>
  );
}
