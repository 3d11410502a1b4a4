// Sets the theme that was chosen before anything is painted. Not a module: those run too late for that.
(() => {
  try {
    const theme = localStorage.getItem("limpet.theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch {
    // A private window may have no storage: then the system decides.
  }
})();
