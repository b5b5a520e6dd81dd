// Sends documents round again: first counts, then shows the count, and only then starts a run.
import { ask, base } from "./page.js";

const dialog = document.getElementById("redrive");

if (dialog) {
  const form = document.getElementById("redrive-form");
  const count = document.getElementById("redrive-count");
  const problem = document.getElementById("redrive-problem");
  const go = document.getElementById("redrive-go");
  let asked = 0;

  const wanted = () => {
    const values = { limit: 100_000 };
    if (dialog.dataset.runId) values.run_id = dialog.dataset.runId;
    for (const name of ["error_class", "prefix"]) {
      const value = form.elements[name]?.value;
      if (value) values[name] = value;
    }
    return values;
  };

  const documents = (number) => (number === 1 ? "1 document" : `${number.toLocaleString()} documents`);

  const say = (...nodes) => count.replaceChildren(...nodes);

  // The classes that there are letters of, to choose from.
  function offer(labels) {
    const select = form.elements.error_class;
    if (!select || select.value) return;
    const classes = [...new Set(labels.map((label) => label.split("/")[0]))].filter((one) => /^[A-Z]+$/.test(one));
    select.replaceChildren(select.options[0], ...classes.sort().map((one) => new Option(one, one)));
  }

  async function countThem() {
    const number = ++asked;
    go.disabled = true;
    go.textContent = "Redrive";
    problem.textContent = "";
    say("Counting …");
    try {
      const found = await ask("/v1/redrive", { method: "POST", body: { ...wanted(), is_dry_run: true } });
      if (number !== asked) return;
      offer(Object.keys(found.by_error ?? {}));
      const kinds = document.createElement("ul");
      for (const [label, times] of Object.entries(found.by_error ?? {})) {
        const item = document.createElement("li");
        const code = document.createElement("code");
        code.textContent = label;
        item.append(code, ` ${times.toLocaleString()}`);
        kinds.append(item);
      }
      const sure = found.is_complete ? "" : " at least; there was more than could be counted in 15 seconds";
      const sentence = document.createElement("b");
      sentence.textContent = found.documents
        ? `${documents(found.documents)}${sure} would be sent round again.`
        : "No dead letter is like that: there is nothing to send.";
      say(sentence, kinds);
      go.disabled = !found.documents;
      go.textContent = found.documents ? `Redrive ${documents(found.documents)}` : "Redrive";
    } catch (error) {
      if (number !== asked) return;
      say();
      problem.textContent = error.message;
    }
  }

  async function redrive() {
    go.disabled = true;
    problem.textContent = "";
    try {
      const started = await ask("/v1/redrive", { method: "POST", body: { ...wanted(), is_dry_run: false } });
      const link = document.createElement("a");
      link.href = `${base}/pages/runs/${encodeURIComponent(started.run_id)}?dag_id=pdf_redrive`;
      link.textContent = "Watch it";
      say("The redrive has been started. ", link);
      go.textContent = "Started";
      link.focus();
    } catch (error) {
      problem.textContent = error.message;
      go.disabled = false;
    }
  }

  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-opens=redrive]")) {
      dialog.showModal();
      countThem();
    } else if (event.target.closest("#redrive [data-closes]")) dialog.close();
  });
  form.addEventListener("change", countThem);
  form.addEventListener("submit", (event) => event.preventDefault());
  go.addEventListener("click", redrive);
}
