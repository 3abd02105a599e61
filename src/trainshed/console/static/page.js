// What all pages share: local times, counting durations, copy buttons, confirmation dialogs.
"use strict";

(() => {
  const two = (number) => String(number).padStart(2, "0");

  function formatDuration(seconds) {
    const whole = Math.max(0, Math.floor(seconds));
    if (whole < 60) return `${whole}s`;
    if (whole < 3600) return `${Math.floor(whole / 60)}m ${two(whole % 60)}s`;
    if (whole < 86400) return `${Math.floor(whole / 3600)}h ${two(Math.floor((whole % 3600) / 60))}m`;
    return `${Math.floor(whole / 86400)}d ${Math.floor((whole % 86400) / 3600)}h`;
  }

  function localise(root) {
    for (const element of root.querySelectorAll("time[data-moment]")) {
      const date = new Date(element.dateTime);
      if (Number.isNaN(date.getTime())) continue;
      const clock = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
      const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
      element.title = `${day} ${clock}`;
      element.textContent = element.dataset.moment === "time" ? clock : `${day} ${clock}`;
    }
    for (const element of root.querySelectorAll("[data-since]")) {
      // The server's clock counts: the browser's may be wrong.
      if (!element.dataset.origin) {
        const passed = Number(element.dataset.now) - Number(element.dataset.since);
        element.dataset.origin = String(performance.now() / 1000 - passed);
      }
    }
  }

  function tick() {
    for (const element of document.querySelectorAll("[data-origin]")) {
      const text = formatDuration(performance.now() / 1000 - Number(element.dataset.origin));
      if (element.textContent !== text) element.textContent = text;
    }
  }

  async function copy(button) {
    const label = button.textContent;
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
    } catch {
      // No clipboard without https: select the text, so that the keyboard can copy it.
      const range = document.createRange();
      range.selectNodeContents(button.previousElementSibling);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      return;
    }
    button.textContent = button.dataset.copied;
    setTimeout(() => { button.textContent = label; }, 1500);
  }

  document.addEventListener("click", (event) => {
    const target = event.target.closest("[data-copy], [data-open], [data-close]");
    if (!target) return;
    if (target.dataset.copy !== undefined) copy(target);
    else if (target.dataset.open) document.getElementById(target.dataset.open)?.showModal();
    else target.closest("dialog")?.close();
  });

  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-submit-on-change]")) event.target.form.submit();
  });

  // A long story is opened at its end.
  function showEnd() {
    for (const story of document.querySelectorAll(".story")) story.scrollTop = story.scrollHeight;
  }

  document.addEventListener("htmx:afterSettle", () => { localise(document); tick(); showEnd(); });
  // A refresh that fails is tried again by the next one; the page says so until then.
  const away = (is) => document.documentElement.classList.toggle("away", is);
  document.addEventListener("htmx:sendError", () => away(true));
  document.addEventListener("htmx:responseError", (event) => away(event.detail.xhr.status >= 500));
  document.addEventListener("htmx:afterRequest", (event) => { if (event.detail.successful) away(false); });

  // A word such as ?done=stop is shown once, not again after a reload.
  const address = new URL(location.href);
  if (address.searchParams.has("done") || address.searchParams.has("lang")) {
    address.searchParams.delete("done");
    address.searchParams.delete("lang");
    history.replaceState(null, "", address);
  }

  localise(document);
  tick();
  showEnd();
  setInterval(tick, 1000);
})();
