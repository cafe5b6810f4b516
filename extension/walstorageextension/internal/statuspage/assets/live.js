// SPDX-License-Identifier: Apache-2.0

// Fetches the page again and swaps in the parts that changed. The server
// renders everything; this only saves the reader from reloading.
(() => {
  "use strict";
  const every = 2000; // ms
  const pause = document.getElementById("pause");
  const connection = document.getElementById("connection");
  let paused = false;
  let failedSince = null;

  const parts = (root) => new Map([...root.querySelectorAll("[data-live]")].map((e) => [e.dataset.live, e]));
  const names = (root) => [...root.querySelectorAll("[data-log]")].map((e) => e.dataset.log).join("\n");

  function swap(next) {
    document.title = next.title;
    const here = parts(document);
    const there = parts(next);
    // Another set of logs or of parts: take the whole, and open what was open.
    if (names(document) !== names(next) || [...here.keys()].sort().join() !== [...there.keys()].sort().join()) {
      const open = [...document.querySelectorAll("details[open]")].map((e) => e.id);
      document.querySelector("main").replaceWith(document.importNode(next.querySelector("main"), true));
      for (const id of open) document.getElementById(id)?.setAttribute("open", "");
      prepareFilters();
      return;
    }
    for (const [key, element] of here) {
      const fresh = there.get(key);
      if (element.className !== fresh.className && "liveClass" in element.dataset) element.className = fresh.className;
      if (element.innerHTML !== fresh.innerHTML) {
        element.replaceChildren(...[...fresh.childNodes].map((n) => document.importNode(n, true)));
        applyFilters();
      }
    }
  }

  async function update() {
    try {
      const response = await fetch(location.pathname, { cache: "no-store", credentials: "same-origin" });
      if (!response.ok) throw new Error(String(response.status));
      swap(new DOMParser().parseFromString(await response.text(), "text/html"));
      failedSince = null;
      if (connection.textContent) connection.textContent = "";
    } catch {
      failedSince ??= new Date();
      const text = `No answer since ${failedSince.toLocaleTimeString()}; what you see is old.`;
      if (connection.textContent !== text) connection.textContent = text;
    }
  }

  async function run() {
    if (!paused && !document.hidden) await update();
    setTimeout(run, every);
  }

  function applyFilters() {
    for (const input of document.querySelectorAll("[data-filter]")) {
      const want = input.value.trim().toLowerCase();
      for (const row of document.querySelectorAll(`#${input.dataset.filter} tbody tr`)) {
        const is = [...row.children].slice(0, 3).map((c) => c.textContent).join(" ").toLowerCase();
        row.hidden = want !== "" && !is.includes(want);
      }
    }
  }

  function prepareFilters() {
    for (const input of document.querySelectorAll("[data-filter]")) {
      input.closest(".filter").hidden = false;
      input.addEventListener("input", applyFilters);
    }
  }

  pause.hidden = false;
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
  });
  document.addEventListener("visibilitychange", () => { if (!document.hidden && !paused) update(); });
  prepareFilters();
  setTimeout(run, every);
})();
