// Follows a run until its report is written: asks often while something moves, seldom while nothing does, and not
// at all while nobody looks.
import { refresh, showTrouble } from "./page.js";
import "./redrive.js";

const FASTEST_MS = 2_000;
const SLOWEST_MS = 30_000;
const SPOKEN_EVERY_MS = 15_000;
const GIVE_UP_MS = 24 * 3_600_000;

const spoken = document.getElementById("spoken");
const began = Date.now();
let pause = FASTEST_MS;
let headline = text();
let spokenAt = 0;

function text() {
  return document.querySelector("[data-headline]")?.textContent ?? "";
}

function isLive() {
  return document.getElementById("run").dataset.live === "yes";
}

function speak() {
  const isOver = !isLive();
  if (isOver || Date.now() - spokenAt > SPOKEN_EVERY_MS) {
    spoken.textContent = isOver ? `The run has ended. ${text()}` : text();
    spokenAt = Date.now();
  }
}

async function look() {
  if (!document.hidden) {
    try {
      await refresh(location.href);
      showTrouble("");
      const isMoving = text() !== headline;
      headline = text();
      pause = isMoving ? FASTEST_MS : Math.min(pause * 1.3, SLOWEST_MS / 3);
      if (isMoving) speak();
    } catch (problem) {
      pause = Math.min(pause * 2, SLOWEST_MS);
      showTrouble(`${problem.message} What is shown may be old; the next try is in ${Math.round(pause / 1000)} s.`);
      if (problem.status === 401) return;
    }
  }
  if (isLive() && Date.now() - began < GIVE_UP_MS) setTimeout(look, pause);
}

if (isLive()) setTimeout(look, pause);
document.addEventListener("visibilitychange", () => {
  pause = FASTEST_MS;
});
