"""The page in a real browser: the viewer draws a molecule, and a click on the map shows another one."""

import html
import json
import re
import shutil
import subprocess

import pytest

from adaptntk.verbs.report import report as write_report

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
# No window, no network of its own, and WebGL computed by the processor.
FLAGS = [
    "--headless", "--no-sandbox", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--use-gl=angle", "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader", "--window-size=1200,1000", "--virtual-time-budget=60000",
]  # fmt: skip
# Stands at the end of a copy of the page, does what a reader would do, and leaves what it saw in the page.
PROBE = """<script>
const pause = (time) => new Promise((done) => setTimeout(done, time));
const within = (root, selector) => [
  ...root.querySelectorAll(selector),
  ...[...root.querySelectorAll("*")].flatMap((node) => (node.shadowRoot ? within(node.shadowRoot, selector) : [])),
];
const colours = (canvas) => {
  const copy = document.createElement("canvas");
  [copy.width, copy.height] = [canvas.width, canvas.height];
  const context = copy.getContext("2d");
  context.drawImage(canvas, 0, 0);
  return new Set(new Uint32Array(context.getImageData(0, 0, copy.width, copy.height).data.buffer)).size;
};
async function click(plot, index) {
  const layout = plot._fullLayout, frame = plot.getBoundingClientRect();
  const x = frame.left + layout.xaxis._offset + layout.xaxis.l2p(plot.data[0].x[index]);
  const y = frame.top + layout.yaxis._offset + layout.yaxis.l2p(plot.data[0].y[index]);
  const area = within(plot, ".nsewdrag")[0];
  for (const [kind, shift] of [["mousemove", 1], ["mousemove", 0], ["mousedown", 0], ["mouseup", 0], ["click", 0]]) {
    const event = { clientX: x + shift, clientY: y, bubbles: true, cancelable: true, composed: true, view: window };
    (kind === "mouseup" ? document : area).dispatchEvent(new MouseEvent(kind, event));
    await pause(400);
  }
}
async function probe() {
  const message = document.getElementById("viewer-message");
  for (let i = 0; i < 200 && !message.hidden; i++) await pause(200);
  await pause(1500);
  const plot = within(document, ".js-plotly-plot")[0];
  const canvas = within(document.getElementById("viewer-structure"), "canvas")[0];
  const number = within(document.getElementById("viewer-info"), ".chsp-info-number")[0];
  const seen = { message: message.hidden ? "" : message.textContent, points: plot.data[0].x.length };
  seen.first = Number(number.value);
  seen.colours = colours(canvas);
  const before = canvas.toDataURL();
  await pause(500);
  seen.still = canvas.toDataURL() === before;
  await click(plot, 40);
  seen.second = Number(number.value);
  seen.changed = canvas.toDataURL() !== before;
  seen.loaded = performance.getEntriesByType("resource").map((entry) => entry.name);
  const result = document.createElement("pre");
  result.id = "probe";
  result.textContent = JSON.stringify(seen);
  document.body.appendChild(result);
}
probe();
</script></body>"""


def open_page(path, profile) -> str:
    """The page as it stands after a minute of the browser's time."""
    command = [BROWSER, *FLAGS, f"--user-data-dir={profile}", "--dump-dom", path.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout


@pytest.mark.skipif(BROWSER is None, reason="no chromium here: apt-get install chromium")
def test_the_viewer_draws_molecules(run_folder, tmp_path):
    page = write_report(run=run_folder, output=tmp_path / "report.html").path
    page.write_text(page.read_text().replace("</body>", PROBE))
    dump = open_page(page, tmp_path / "profile")
    found = re.search(r'<pre id="probe">(.*?)</pre>', dump, re.DOTALL)
    assert found, "the viewer did not come up"
    seen = json.loads(html.unescape(found.group(1)))
    assert seen["message"] == ""
    assert seen["points"] == 90
    assert seen["colours"] > 100, "an empty canvas has one colour"
    assert seen["still"], "the picture must not change by itself"
    assert (seen["first"] != 40, seen["second"]) == (True, 40)
    assert seen["changed"]
    assert seen["loaded"] == []


@pytest.mark.skipif(BROWSER is None, reason="no chromium here: apt-get install chromium")
def test_a_viewer_that_fails_says_so(run_folder, tmp_path):
    page = write_report(run=run_folder, output=tmp_path / "report.html").path
    page.write_text(page.read_text().replace('id="viewer-dataset">', 'id="viewer-dataset">!'))
    assert "The viewer cannot be shown in this browser" in open_page(page, tmp_path / "profile")
