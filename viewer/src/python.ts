// Numbers of a step as Python, to compute it again by hand.
import type { Step, StepTensor } from "./data/types";

/** "a v" -> "a_v", "1st" -> "_1st": a name that Python takes. */
export function pythonName(name: string): string {
  const plain =
    name
      .normalize("NFKD")
      .replace(/[^\p{L}\p{N}_]+/gu, "_")
      .replace(/^_+|_+$/g, "") || "x";
  return /^\p{N}/u.test(plain) ? `_${plain}` : plain;
}

export function toPython(step: Step, numbersOf: (tensor: StepTensor) => ArrayLike<number>): string {
  const lines = ["import numpy as np", "", `# ${step.title.replaceAll("\n", " ")}: ${step.formula.replaceAll("\n", " ")}`];
  for (const tensor of step.tensors) {
    const values = Array.from(numbersOf(tensor), (value) =>
      Number.isNaN(value) ? "np.nan" : value === Infinity ? "np.inf" : value === -Infinity ? "-np.inf" : String(value),
    );
    const shape = tensor.shape.length > 1 ? `.reshape(${tensor.shape.join(", ")})` : "";
    lines.push(`${pythonName(tensor.name)} = np.array([${values.join(", ")}], dtype=np.float32)${shape}`);
  }
  return lines.join("\n") + "\n";
}
