// Follow what happens: a server-sent event says that something may have changed; then the page is fetched again, and the
// parts marked data-live that differ are replaced. Without this script every page works, and shows what was when it was made.
"use strict";
(() => {
  const pulse = document.getElementById("pulse");
  const live = () => document.querySelectorAll("[data-live]");
  let busy = false, again = false;

  // Do not take away what a person is using: a field or button with the focus, selected text, an open menu.
  const inUse = (part) =>
    part.contains(document.activeElement) || (getSelection().toString() && part.contains(getSelection().anchorNode));

  const replace = (part, fresh) => {
    const open = new Map([...part.querySelectorAll("details[id]")].map((d) => [d.id, d.open]));
    fresh.querySelectorAll("details[id]").forEach((d) => { if (open.has(d.id)) d.open = open.get(d.id); });
    if (part.innerHTML !== fresh.innerHTML) part.replaceChildren(...fresh.childNodes);
  };

  const refresh = async () => {
    if (busy) { again = true; return; }
    busy = true;
    try {
      const answer = await fetch(location.href, { headers: { accept: "text/html" }, redirect: "error" });
      if (answer.ok) {
        const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
        live().forEach((part) => {
          const now = fresh.getElementById(part.id);
          if (now && !inUse(part)) replace(part, now);
        });
      }
    } catch { /* The next event tries again. */ }
    busy = false;
    if (again) { again = false; refresh(); }
  };

  let stream = null, first = true;
  const listen = () => {
    if (!live().length || stream || document.hidden) return;
    stream = new EventSource("live");
    stream.addEventListener("open", () => { pulse.hidden = false; });
    stream.addEventListener("error", () => { pulse.hidden = true; });
    stream.addEventListener("change", () => { if (!first) refresh(); first = false; });
  };
  const leave = () => { if (stream) { stream.close(); stream = null; pulse.hidden = true; } };
  document.addEventListener("visibilitychange", () => { if (document.hidden) leave(); else { listen(); refresh(); } });
  addEventListener("pagehide", leave);
  listen();

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, select, textarea")) return;
    const target = document.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
    if (event.key === "r") refresh();
    else if (target && target.tagName === "INPUT") { event.preventDefault(); target.focus(); }
    else if (target) target.click();
  });
})();
