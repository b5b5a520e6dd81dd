// Takes the theme that a person chose in Airflow, which keeps it in this browser under "theme". Without one the
// system's choice holds. A classic script in the head, so that the page is never shown in the wrong colours first.
"use strict";
{
  const take = () => {
    let chosen = null;
    try {
      chosen = localStorage.getItem("theme");
    } catch {
      // Storage may be blocked; then the system's choice holds.
    }
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
    else delete document.documentElement.dataset.theme;
  };
  take();
  addEventListener("storage", take);
}
