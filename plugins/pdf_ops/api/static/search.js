// Searches in the text of all pages. What is found is text of documents: it is put in as text, never as markup.
import { ask, base } from "./page.js";

const LIMIT = 20;
const form = document.getElementById("search");
const box = document.getElementById("q");
const status = document.getElementById("search-status");
const problem = document.getElementById("search-problem");
const hits = document.getElementById("hits");
const more = document.getElementById("more-hits");
let asked = 0;
let next = null;

function make(name, className, ...children) {
  const element = document.createElement(name);
  if (className) element.className = className;
  element.append(...children);
  return element;
}

function show(hit) {
  const link = make("a", "", hit.filename || hit.s3_key);
  link.href = `${base}/pages/documents/${encodeURIComponent(hit.document_id)}?page=${encodeURIComponent(hit.page)}`;
  const of = hit.page_count ? ` of ${hit.page_count.toLocaleString()}` : "";
  const snippet = make("p", "snippet");
  for (const part of hit.snippet ?? []) snippet.append(part.is_hit ? make("mark", "", part.text) : part.text);
  hits.append(
    make(
      "li",
      "",
      make("p", "", link, make("span", "soft", ` page ${hit.page.toLocaleString()}${of}`)),
      snippet,
      make("p", "key soft", hit.s3_key),
    ),
  );
}

async function search(words, cursor) {
  const number = ++asked;
  problem.textContent = "";
  more.hidden = true;
  if (!cursor) hits.replaceChildren();
  if (!words) {
    status.textContent = "";
    return;
  }
  status.textContent = "Searching …";
  const query = new URLSearchParams({ q: words, limit: LIMIT });
  if (cursor) query.set("cursor", cursor);
  try {
    const found = await ask(`/v1/search?${query}`);
    if (number !== asked) return;
    found.hits.forEach(show);
    next = found.next_cursor;
    more.hidden = !next;
    const shown = hits.children.length;
    const total = found.total ?? (next ? null : shown);
    const pages = total === null ? `${shown} and more` : total.toLocaleString();
    const built = found.index?.built_at ? ` The index is of ${new Date(found.index.built_at).toLocaleString()}.` : "";
    status.textContent = shown ? `${pages} ${total === 1 ? "page has" : "pages have"} it.${built}` : `No page has it.${built}`;
  } catch (error) {
    if (number !== asked) return;
    status.textContent = "";
    problem.textContent = error.message;
  }
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const address = new URL(location.href);
  if (box.value.trim()) address.searchParams.set("q", box.value.trim());
  else address.searchParams.delete("q");
  history.replaceState(null, "", address);
  search(box.value.trim());
});
more.addEventListener("click", () => search(box.value.trim(), next));

const given = new URL(location.href).searchParams.get("q");
if (given) {
  box.value = given;
  search(given);
}
