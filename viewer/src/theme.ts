// Light or dark: as the system says, or as the switch says.
import { computed, effect, signal } from "@preact/signals";

const system = matchMedia("(prefers-color-scheme: dark)");
const systemDark = signal(system.matches);
system.addEventListener("change", () => (systemDark.value = system.matches));

export const chosenTheme = signal<"light" | "dark" | null>(remembered());
export const dark = computed(() => (chosenTheme.value ? chosenTheme.value === "dark" : systemDark.value));

export function switchTheme(): void {
  chosenTheme.value = dark.value ? "light" : "dark";
  try {
    localStorage.setItem("regard-theme", chosenTheme.value);
  } catch {
    // A page without storage forgets the choice.
  }
}

function remembered(): "light" | "dark" | null {
  try {
    const value = localStorage.getItem("regard-theme");
    return value === "light" || value === "dark" ? value : null;
  } catch {
    return null;
  }
}

effect(() => {
  document.documentElement.dataset.theme = dark.value ? "dark" : "light";
});
