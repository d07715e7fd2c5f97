// Dark and light: as the system has it, or as chosen here.

const THEMES = { system: "Theme: as the system", light: "Theme: light", dark: "Theme: dark" };
const SIGNS = { system: "\u25d0", light: "\u2600", dark: "\u263e" };

function stored() {
  try {
    const theme = localStorage.getItem("streamkit-theme");
    return theme in THEMES ? theme : "system";
  } catch {
    return "system"; // a browser may refuse to store anything
  }
}

/** Make a button switch the theme. */
export function showTheme(button) {
  let theme = stored();
  const show = () => {
    document.documentElement.dataset.theme = theme;
    button.textContent = SIGNS[theme];
    button.title = THEMES[theme];
    button.setAttribute("aria-label", THEMES[theme]);
  };
  button.addEventListener("click", () => {
    const names = Object.keys(THEMES);
    theme = names[(names.indexOf(theme) + 1) % names.length];
    try {
      localStorage.setItem("streamkit-theme", theme);
    } catch {
      // It holds for this page alone.
    }
    show();
  });
  show();
}
