// From the text of a log to lines on the page: colours, progress bars, odd characters. Only text nodes are made.
"use strict";

const LogText = (() => {
  const LONGEST = 8000;
  const ESCAPE = /\u001b(?:\[([0-9;:]*)m|\[[0-9;:?<=>!]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[@-Z\\-_()][0-9A-B]?)/g;
  const CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f]/g;

  const plainStyle = () => ({ color: "", background: "", bold: false, dim: false, italic: false, underline: false });

  function applyCodes(style, text) {
    const codes = text === "" ? [0] : text.split(/[;:]/).map(Number);
    for (let i = 0; i < codes.length; i += 1) {
      const code = codes[i];
      if (code === 0) Object.assign(style, plainStyle());
      else if (code === 1) style.bold = true;
      else if (code === 2) style.dim = true;
      else if (code === 3) style.italic = true;
      else if (code === 4) style.underline = true;
      else if (code === 22) { style.bold = false; style.dim = false; }
      else if (code === 23) style.italic = false;
      else if (code === 24) style.underline = false;
      else if (code >= 30 && code <= 37) style.color = `ansi-${code - 30}`;
      else if (code >= 90 && code <= 97) style.color = `ansi-${code - 90 + 8}`;
      else if (code === 39) style.color = "";
      else if (code >= 40 && code <= 47) style.background = `ansi-on-${code - 40}`;
      else if (code >= 100 && code <= 107) style.background = `ansi-on-${code - 100}`;
      else if (code === 49) style.background = "";
      else if (code === 38 || code === 48) {
        // 256 colours: the first 16 have names, the others are shown plainly.
        if (codes[i + 1] === 5) {
          if (code === 38 && codes[i + 2] < 16) style.color = `ansi-${codes[i + 2]}`;
          i += 2;
        } else if (codes[i + 1] === 2) i += 4;
      }
    }
  }

  function classesOf(style) {
    const names = [];
    if (style.color) names.push(style.color);
    if (style.background) names.push(style.background);
    for (const name of ["bold", "dim", "italic", "underline"]) if (style[name]) names.push(`ansi-${name}`);
    return names.join(" ");
  }

  const visible = (text) => text.replace(CONTROL, (char) =>
    String.fromCharCode(char === "\u007f" ? 0x2421 : 0x2400 + char.charCodeAt(0)));

  // What a terminal would show in the end: each carriage return starts the line anew.
  function afterReturns(text) {
    if (!text.includes("\r")) return text;
    const parts = text.split("\r");
    for (let i = parts.length - 1; i > 0; i -= 1) if (parts[i] !== "") return parts[i];
    return parts[0];
  }

  function appendText(element, text, style) {
    if (!text) return;
    const classes = classesOf(style);
    if (!classes) { element.append(visible(text)); return; }
    const span = document.createElement("span");
    span.className = classes;
    span.textContent = visible(text);
    element.append(span);
  }

  class Painter {
    // `style` goes on from line to line, as in a terminal.
    constructor(longNote) {
      this.style = plainStyle();
      this.longNote = longNote;
    }

    // Fills the element with one line; `keep` is false for a line that will still change.
    paint(element, raw, keep = true) {
      let text = afterReturns(raw);
      const cut = text.length > LONGEST;
      if (cut) text = text.slice(0, LONGEST);
      const style = { ...this.style };
      let at = 0;
      element.textContent = "";
      for (const match of text.matchAll(ESCAPE)) {
        appendText(element, text.slice(at, match.index), style);
        if (match[1] !== undefined) applyCodes(style, match[1]);
        at = match.index + match[0].length;
      }
      appendText(element, text.slice(at), style);
      if (cut) {
        const note = document.createElement("span");
        note.className = "log-note";
        note.textContent = this.longNote;
        element.append(note);
      }
      if (keep) this.style = style;
    }
  }

  // The end of an unfinished line that is still needed: a bar that is drawn a million times stays one line.
  function shorten(raw) {
    if (raw.length <= LONGEST * 4) return raw;
    const last = raw.lastIndexOf("\r", raw.length - 2);
    return last >= 0 ? raw.slice(last) : raw.slice(0, LONGEST + 1);
  }

  return { Painter, shorten };
})();
