// Figures: unpacking, and what each marker stands for.

/** Unpack the HTML that an element has packed. */
async function unpack(element) {
  const packed = Uint8Array.from(atob(element.dataset.zlib), (letter) => letter.charCodeAt(0));
  delete element.dataset.zlib;
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const unpacked = document.createElement("template");
  unpacked.innerHTML = await new Response(stream).text();
  return unpacked.content;
}

/** Draw the figures of a tab; several calls draw them once. */
async function drawFigures(panel) {
  if (!panel.dataset.zlib) return;
  const svgs = await unpack(panel);
  for (const plot of all(".plot", panel)) {
    plot.append(svgs.firstElementChild);
    plot.style.aspectRatio = "";
    plot.firstElementChild.setAttribute("aria-hidden", "true");
  }
}

const tip = byId("tip");
const NEAR = 24;  // pixels

/** List the markers of a figure that are to be seen, with their places in pixels of the window. */
function markersOf(plot) {
  const svg = plot.querySelector("svg");
  const matrix = svg?.getScreenCTM();
  // Chromium's checkVisibility is true for parts of an SVG that are not displayed.
  const isShown = (series) => getComputedStyle(series).display !== "none";
  return all(".series[data-points]", plot).filter(isShown).flatMap((series) => {
    const texts = series.dataset.points.split("\n");
    // A marker that is half filled is two uses, the second ones after all first ones.
    const marks = all(series.querySelector("use") ? "use" : "path", series).slice(0, texts.length);
    if (marks.length !== texts.length) return [];
    return marks.map((mark, k) => {
      const box = mark.getBBox();
      const place = new DOMPoint(box.x + box.width / 2, box.y + box.height / 2).matrixTransform(matrix);
      return { series, text: texts[k], x: place.x, y: place.y };
    });
  });
}

function showRow(plot, row) {
  plot.classList.toggle("chosen", row !== null);
  for (const series of all(".series", plot)) series.classList.toggle("current", series.dataset.row === row);
}

function showMarker(plot, marker) {
  showRow(plot, marker?.series.dataset.row ?? null);
  tip.hidden = !marker;
  if (!marker) return;
  const name = document.createElement("strong");
  name.textContent = marker.series.dataset.row;
  tip.replaceChildren(name, document.createElement("br"), marker.text);
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(marker.x + 12, innerWidth - width - 4))}px`;
  tip.style.top = `${marker.y - height - 12 < 4 ? marker.y + 12 : marker.y - height - 12}px`;
}

function hover(event) {
  const plot = event.currentTarget;
  let nearest = null, least = NEAR;
  for (const marker of markersOf(plot)) {
    const distance = Math.hypot(marker.x - event.clientX, marker.y - event.clientY);
    if (distance < least) [nearest, least] = [marker, distance];
  }
  showMarker(plot, nearest);
  if (!nearest) showRow(plot, event.target.closest(".series")?.dataset.row ?? null);
}

/** Go through markers by left and right, and from one row to the next by up and down. */
function step(event) {
  const plot = event.currentTarget, markers = markersOf(plot);
  const direction = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (event.key === "Escape") showMarker(plot, null);
  if (!direction || !markers.length) return;
  event.preventDefault();
  const before = markers.findIndex((marker) => `${marker.series.dataset.row}\n${marker.text}` === plot.dataset.at);
  let k = before < 0 ? (direction > 0 ? 0 : markers.length - 1) : before + direction;
  if (/Up|Down/.test(event.key) && before >= 0) {
    while (markers[k]?.series === markers[before].series) k += direction;
  }
  const marker = markers[(k + markers.length) % markers.length];
  plot.dataset.at = `${marker.series.dataset.row}\n${marker.text}`;
  showMarker(plot, marker);
}

for (const plot of all(".plot")) {
  plot.addEventListener("pointermove", hover);
  plot.addEventListener("pointerdown", hover);
  plot.addEventListener("pointerleave", () => showMarker(plot, null));
  plot.addEventListener("keydown", step);
  plot.addEventListener("blur", () => showMarker(plot, null));
}
addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });
