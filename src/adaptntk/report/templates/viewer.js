"use strict";

// Both texts are compressed, so that the page stays small enough to be mailed.
async function unpacked(id) {
  const packed = atob(document.getElementById(id).textContent);
  const bytes = Uint8Array.from(packed, (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

async function showViewer() {
  const message = document.getElementById("viewer-message");
  try {
    const script = document.createElement("script");
    script.textContent = await unpacked("viewer-script");
    document.head.appendChild(script);
    const dataset = JSON.parse(await unpacked("viewer-dataset"));
    const places = { map: "viewer-map", info: "viewer-info", meta: "viewer-meta", structure: "viewer-structure" };
    await Chemiscope.DefaultVisualizer.load(places, dataset);
    message.hidden = true;
  } catch (error) {
    message.textContent = `The viewer cannot be shown in this browser: ${error.message || error}`;
  }
}

showViewer();
