// Starts the page.
import { render } from "preact";
import "uplot/dist/uPlot.min.css";
import "./style/base.css";
import "./style/layout.css";
import "./style/parts.css";
import "./style/pieces.css";
import "./style/views_heads_steps.css";
import "./style/views_others.css";
import { App } from "./app";
import { start } from "./state";

start();
const place = document.getElementById("page")!;
place.replaceChildren();
render(<App />, place);
