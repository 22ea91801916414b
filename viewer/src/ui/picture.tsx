// A canvas that draws a painter, sharp on every screen, and passes on pointer and keys.
import { useLayoutEffect, useRef } from "preact/hooks";
import { CanvasSurface } from "../draw/canvas";
import type { Painter } from "../draw/surface";
import { dark } from "../theme";

/** A new canvas with the picture on it. */
export function drawn(width: number, height: number, paint: Painter, isDark: boolean, ratio: number): HTMLCanvasElement {
  const canvas = document.createElement("canvas");
  drawOn(canvas, width, height, paint, isDark, ratio, true);
  return canvas;
}

function drawOn(
  canvas: HTMLCanvasElement,
  width: number,
  height: number,
  paint: Painter,
  isDark: boolean,
  ratio: number,
  filled = false,
): void {
  const wide = Math.max(1, Math.round(width * ratio));
  const high = Math.max(1, Math.round(height * ratio));
  if (canvas.width !== wide) canvas.width = wide;
  if (canvas.height !== high) canvas.height = high;
  const pen = canvas.getContext("2d")!;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  const surface = new CanvasSurface(pen, isDark);
  if (filled) surface.box(0, 0, width, height, { fill: surface.paper.back });
  paint(surface);
}

export function PictureCanvas(props: {
  width: number;
  height: number;
  paint: Painter;
  label: string;
  class?: string;
  describedBy?: string;
  /** Without these the canvas is a plain picture. */
  onPoint?: (x: number, y: number) => void;
  onLeave?: () => void;
  onClick?: (x: number, y: number) => void;
  onKey?: (key: string) => boolean;
}) {
  const ref = useRef<HTMLCanvasElement>(null);
  const { width, height, paint } = props;
  useLayoutEffect(() => {
    const canvas = ref.current;
    if (!canvas || width <= 0 || height <= 0) return;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    const ratio = Math.min(devicePixelRatio || 1, width * height > 2_000_000 ? 1 : 2);
    drawOn(canvas, width, height, paint, dark.value, ratio);
    canvas.dataset.painted = String(Math.round(performance.now()));
  });
  const at = (event: MouseEvent, then?: (x: number, y: number) => void) => {
    const bounds = ref.current!.getBoundingClientRect();
    then?.(event.clientX - bounds.left, event.clientY - bounds.top);
  };
  const active = Boolean(props.onKey);
  return (
    <canvas
      ref={ref}
      class={props.class}
      role={active ? "application" : "img"}
      aria-label={props.label}
      aria-describedby={props.describedBy}
      tabIndex={active ? 0 : undefined}
      onPointerMove={props.onPoint ? (event) => at(event, props.onPoint) : undefined}
      onPointerDown={props.onPoint ? (event) => at(event, props.onPoint) : undefined}
      onPointerLeave={props.onLeave}
      onClick={props.onClick ? (event) => at(event, props.onClick) : undefined}
      onKeyDown={(event) => {
        if (!event.ctrlKey && !event.metaKey && !event.altKey && props.onKey?.(event.key)) event.preventDefault();
      }}
    />
  );
}
