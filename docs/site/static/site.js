"use strict";
// Completes what keyboards and screen readers need, on top of the theme.
document.addEventListener("DOMContentLoaded", () => {
  const makeScrollable = () => {
    for (const region of document.querySelectorAll("pre, .table-wrapper")) {
      if (region.scrollWidth > region.clientWidth || region.scrollHeight > region.clientHeight) region.tabIndex = 0;
      else region.removeAttribute("tabindex");
    }
  };
  makeScrollable();
  window.addEventListener("resize", makeScrollable);
  document.querySelector("aside.sidebar-drawer")?.setAttribute("aria-label", "Pages");
  document.querySelector("aside.toc-drawer")?.setAttribute("aria-label", "On this page");
  if (document.getElementById("search-results") && !document.querySelector("h1")) {
    const heading = document.createElement("h1");
    heading.textContent = "Search";
    document.getElementById("search-results").before(heading);
  }
});
