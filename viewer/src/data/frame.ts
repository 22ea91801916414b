// Framed answers: length, JSON header, padding to 4 bytes, then the numbers.
import type { Frame, FrameHeader } from "./types";

export function readFrame(buffer: ArrayBuffer): Frame {
  if (buffer.byteLength < 4) throw new Error("a framed answer has at least 4 bytes");
  const length = new DataView(buffer).getUint32(0, true);
  if (4 + length > buffer.byteLength) throw new Error("the header is longer than the answer");
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length))) as FrameHeader;
  const start = 4 + length + ((4 - ((4 + length) % 4)) % 4);
  if (header.type === "u8") return { header, numbers: new Uint8Array(buffer, start) };
  const count = Math.floor((buffer.byteLength - start) / 4);
  return { header, numbers: new Float32Array(buffer, start, count) };
}

/** The numbers of a frame as 0..1 floats (u8) or as they are (f32). */
export function asFloats(frame: Frame): Float32Array {
  if (frame.numbers instanceof Float32Array) return frame.numbers;
  return Float32Array.from(frame.numbers, (value) => value / 255);
}
