// All steps as one picture: titles, formulas, and every tensor as bars or cells.
import { aroundZero } from "../colours";
import type { Surface } from "../draw/surface";
import { cut, extent } from "../math";
import { heightOf, LABEL, paintBars } from "../ui/bars_picture";
import { cellsLayout } from "../ui/cells";
import type { Picture } from "../ui/exports";

export interface ShownTensor {
  name: string;
  shape: number[];
  values: Float32Array;
  labels: string[] | null;
}

export interface ShownStep {
  title: string;
  formula: string;
  tensors: ShownTensor[];
}

const WIDTH = 620;
const HEAD = 50;

function tallOf(tensor: ShownTensor): number {
  if (tensor.shape.length === 1 && tensor.labels) return heightOf({ title: tensor.name, bars: barsOf(tensor) });
  const { rows, high } = cellsLayout(tensor.shape, WIDTH - 20, tensor.labels);
  return 28 + rows * high + 8;
}

const barsOf = ({ labels, values }: ShownTensor) => labels!.map((label, index) => ({ label, value: values[index] }));

function paintTensor(surface: Surface, tensor: ShownTensor, top: number): void {
  const { name, shape, values, labels } = tensor;
  if (shape.length === 1 && labels) return paintBars(surface, { title: name, bars: barsOf(tensor) }, top);
  const { rows, columns, left, wide, high } = cellsLayout(shape, WIDTH - 20, labels);
  const scale = aroundZero(...extent(values));
  surface.text(4, top + 16, `${name}  ${shape.join(" × ")}`, { size: 13, bold: true });
  const begin = top + 28;
  const full = Math.floor(values.length / columns);
  const rest = values.length - full * columns;
  if (full) surface.cells(left + 4, begin, wide * columns, high * full, full, columns, values.slice(0, full * columns), scale);
  if (rest) surface.cells(left + 4, begin + high * full, wide * rest, high, 1, rest, values.slice(full * columns), scale);
  if (left)
    for (let row = 0; row < rows; row++)
      surface.text(left, begin + high * (row + 0.5), cut(labels![row] ?? "", 12), { anchor: "end", size: 12 });
}

export function stepsPicture(steps: ShownStep[]): Picture {
  const height = steps.reduce((sum, step) => sum + HEAD + step.tensors.reduce((all, tensor) => all + tallOf(tensor), 0), 10);
  return {
    width: Math.max(WIDTH, LABEL + 400),
    height,
    paint: (surface) => {
      let top = 0;
      for (const step of steps) {
        surface.line(0, top + 4, WIDTH, top + 4, { stroke: surface.paper.line });
        surface.text(4, top + 20, step.title, { size: 16, bold: true });
        surface.text(4, top + 40, step.formula.replaceAll("_", ""), { size: 13, colour: surface.paper.accent });
        top += HEAD;
        for (const tensor of step.tensors) {
          paintTensor(surface, tensor, top);
          top += tallOf(tensor);
        }
      }
    },
  };
}
