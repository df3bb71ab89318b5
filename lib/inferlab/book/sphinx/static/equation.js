// The equation reader: pointing at a part of a formula names it, marks it wherever else it stands,
// and a tap with a finger names it first and follows its link the second time. Without this script
// every part is still a link with a title.
(() => {
  class EquationReader extends HTMLElement {
    connectedCallback() {
      this.say = this.querySelector(".eq-say");
      this.rest = this.say ? this.say.textContent : "";
      for (const part of this.querySelectorAll(".eq-formula .eq-part")) {
        part.dataset.says = part.title;
        part.removeAttribute("title"); // said in the line below the formula instead
      }
      this.addEventListener("pointerover", (event) => this.show(event.target));
      this.addEventListener("pointerleave", () => this.show(this.ownFocus()));
      this.addEventListener("focusin", (event) => this.show(event.target));
      this.addEventListener("focusout", () => this.show(null));
      this.addEventListener("pointerdown", (event) => this.touch(event), true);
      this.addEventListener("click", (event) => this.click(event));
    }

    ownFocus() {
      return this.contains(document.activeElement) ? document.activeElement : null;
    }

    show(target) {
      const part = target && target.closest ? target.closest(".eq-part") : null;
      if (target && !part && this.ownFocus()) return;
      this.part = part;
      const name = part ? part.dataset.part : null;
      const near = this.closest("section") || this;
      const page = near.closest("article") || near;
      for (const other of page.querySelectorAll(".eq-on")) other.classList.remove("eq-on");
      if (this.say) this.say.textContent = part ? part.dataset.says || part.title : this.rest;
      if (!name) return;
      const same = `[data-part="${CSS.escape(name)}"]`;
      for (const other of this.querySelectorAll(same)) other.classList.add("eq-on");
      for (const row of page.querySelectorAll(`tr${same}`)) row.classList.add("eq-on");
    }

    touch(event) {
      const part = event.target.closest(".eq-part");
      this.first = event.pointerType === "touch" && part && this.touched !== part;
      if (event.pointerType === "touch") this.touched = part;
    }

    click(event) {
      const part = event.target.closest(".eq-part");
      if (!part || !this.first) return;
      event.preventDefault();
      this.first = false;
      this.show(part);
      if (this.say && part.href) this.say.textContent += " Tap again for its page.";
    }
  }
  if (!customElements.get("equation-reader")) {
    customElements.define("equation-reader", EquationReader);
  }
})();
