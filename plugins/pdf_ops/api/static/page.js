// What all pages share: local times, dialogs, and links that leave the frame in which Airflow shows a page.

// Airflow's frame allows neither downloads nor links to other windows. A page of ours is of Airflow's own site, so
// it may ask the page around it to follow such a link. Anywhere else the link is followed as any other.
function followOutside(link) {
  let outside;
  try {
    outside = window.parent !== window ? window.parent.document : null;
  } catch {
    return false;
  }
  if (!outside) return false;
  const copy = outside.createElement("a");
  copy.href = link.href;
  copy.rel = "noreferrer";
  if (link.hasAttribute("download")) copy.download = link.download;
  copy.hidden = true;
  outside.body.append(copy);
  copy.click();
  copy.remove();
  return true;
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-top], a[data-download]");
  if (link && !event.ctrlKey && !event.metaKey && !event.shiftKey && followOutside(link)) event.preventDefault();
});

// A link that leads nowhere on the first or last page is shown, so that nothing moves, and does nothing.
document.addEventListener("click", (event) => {
  if (event.target.closest("a[aria-disabled=true]")) event.preventDefault();
});

const local = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

export function showLocalTimes(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const moment = new Date(time.dateTime);
    if (Number.isNaN(moment.getTime())) continue;
    time.title = time.dateTime;
    time.textContent = local.format(moment);
  }
}

// --- asking the server --------------------------------------------------------------------------------------

const TIMEOUT_MS = 20_000;

export class Problem extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

export const base = document.body.dataset.base;

// Asks the API; what it refuses is a Problem whose message says why and what to do.
export async function ask(path, { method = "GET", body } = {}) {
  const headers = { Accept: "application/json", "X-PDF-Ops-Page": "1" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const answer = await send(base + path, {
    method,
    headers,
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  let values = null;
  try {
    values = await answer.json();
  } catch {
    // A proxy's own page, perhaps: the status has to do.
  }
  if (!answer.ok || values === null) {
    throw new Problem(answer.status, values?.detail ?? `The server answered ${answer.status}.`);
  }
  return values;
}

async function send(url, options) {
  try {
    return await fetch(url, { ...options, credentials: "same-origin", signal: AbortSignal.timeout(TIMEOUT_MS) });
  } catch (error) {
    if (error.name === "TimeoutError") throw new Problem(0, "The server did not answer in 20 seconds.");
    throw new Problem(0, "The server cannot be reached. Is the network up, and is it running?");
  }
}

// Asks for a page again and puts what changed of its regions into this one. The server has escaped it.
export async function refresh(url) {
  const answer = await send(url, { headers: { Accept: "text/html" } });
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (!answer.ok) {
    const why = fresh.querySelector("[data-problem]")?.textContent;
    throw new Problem(answer.status, why || `The server answered ${answer.status}.`);
  }
  for (const region of fresh.querySelectorAll("[data-region]")) {
    showLocalTimes(region);
    const shown = document.getElementById(region.id);
    if (!shown) insertRegion(region);
    else if (!shown.isEqualNode(region)) replaceRegion(shown, region);
  }
  return fresh;
}

function insertRegion(region) {
  const before = region.previousElementSibling?.id;
  const neighbour = before && document.getElementById(before);
  if (neighbour) neighbour.after(document.adoptNode(region));
}

// Whatever a person has unfolded or is at stays so.
function replaceRegion(shown, region) {
  const folded = (root) => [...root.querySelectorAll("details")];
  const name = (one) => one.closest("tr")?.querySelector("th")?.textContent ?? one.textContent;
  const open = new Set(folded(shown).filter((one) => one.open).map(name));
  const focused = shown.contains(document.activeElement) ? document.activeElement : null;
  const same = (one) => focused && one.tagName === focused.tagName && one.textContent === focused.textContent;
  const fresh = document.adoptNode(region);
  for (const one of folded(fresh)) one.open = open.has(name(one));
  shown.replaceWith(fresh);
  if (focused) {
    const again = focused.id && document.getElementById(focused.id);
    (again || [...fresh.querySelectorAll("a, button, summary, input")].find(same))?.focus();
  }
}

// --- trouble ------------------------------------------------------------------------------------------------

const trouble = document.getElementById("trouble");

export function showTrouble(text) {
  if (trouble.textContent === text) return;
  trouble.textContent = text;
  trouble.hidden = !text;
}

showLocalTimes(document);
