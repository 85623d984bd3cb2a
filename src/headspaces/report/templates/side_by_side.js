// Two atlases beside each other. An atlas says which heads it shows, and the other one is led to the same.

const models = JSON.parse($("data").textContent);
const sides = { left: { model: 0, page: 0 }, right: { model: models.length > 1 ? 1 : 0, page: 0 } };
const ECHO = 300; // Milliseconds in which a side answers that it was led somewhere: were it heard, each would lead the other for ever.
let address = location.hash.slice(1);

/** Do not listen to a side until it has settled. */
function hush(side) {
  side.hushed = true;
  clearTimeout(side.timer);
  side.timer = setTimeout(() => { side.hushed = false; }, ECHO);
}

/** Show the page that a side has chosen; only its address' end changes where it is there already. */
function show(name) {
  const side = sides[name], { pages } = models[side.model], [label, file] = pages[side.page];
  hush(side);
  side.file = file;
  $(name).src = address ? `${file}#${address}` : file;
  $(`${name}-slider`).hidden = pages.length < 2;
  $(`${name}-step`).max = pages.length - 1;
  $(`${name}-step`).value = side.page;
  $(`${name}-text`).textContent = label;
}

/** Lead the other side to what one shows. */
function lead(name, place) {
  address = place;
  if ($("together").checked) show(name === "left" ? "right" : "left");
}

function start() {
  startTheme();
  const last = ({ pages }) => pages.length - 1;
  sides.left.page = models.length > 1 ? last(models[0]) : 0;
  sides.right.page = last(models[sides.right.model]);
  for (const name of ["right", "left"]) {
    const side = sides[name], select = $(`${name}-model`);
    select.replaceChildren(...models.map((model, index) => new Option(model.name, index, false, index === side.model)));
    select.onchange = () => { side.model = +select.value; side.page = last(models[side.model]); show(name); };
    $(`${name}-step`).oninput = ({ target }) => { side.page = +target.value; show(name); };
    $(name).onload = () => hush(side);
    show(name);
  }
  // What the left side opens on is what both show.
  clearTimeout(sides.left.timer);
  sides.left.hushed = false;
  addEventListener("message", ({ source, data }) => {
    const name = Object.keys(sides).find((one) => $(one).contentWindow === source);
    if (!name || sides[name].hushed || typeof data?.address !== "string" || data.address === address) return;
    if (/^[A-Z]{1,2}(\.\d*){4}$/.test(data.address)) lead(name, data.address);
  });
}

start();
