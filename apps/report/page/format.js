// Numbers for people.
const format = {
  integer: (value) => Math.round(value).toLocaleString("en-US"),
  number: (value) => {
    if (value === 0) return "0";
    const size = Math.abs(value);
    if (size >= 1e6 || size < 1e-3) {
      const [mantissa, exponent] = value.toExponential(2).split("e");
      return `${Number(mantissa)}e${Number(exponent)}`;
    }
    if (size >= 1000) return format.integer(value);
    return String(Number(value.toPrecision(4)));
  },
  bytes: (value) => {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = 0;
    while (Math.abs(value) >= 1024 && unit + 1 < units.length) {
      value /= 1024;
      ++unit;
    }
    return `${Number(value.toPrecision(3))} ${units[unit]}`;
  },
  milliseconds: (value) => `${Number(value.toPrecision(3))} ms`,
  percent: (value) => `${Number((100 * value).toPrecision(2))} %`,
  // For axes: "40 s", "2:30", "1:05:00".
  clock: (value, span) => {
    if (span < 120) return `${Number(value.toPrecision(3))} s`;
    const two = (number) => String(number).padStart(2, "0");
    const whole = Math.round(value);
    const [hours, minutes, seconds] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
    return span < 3600 ? `${minutes}:${two(seconds)}` : `${hours}:${two(minutes)}:${two(seconds)}`;
  },
  seconds: (value) => {
    if (value < 1) return `${Math.round(value * 1000)} ms`;
    if (value < 60) return `${Number(value.toPrecision(3))} s`;
    const whole = Math.round(value);
    const parts = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
    return parts[0] > 0 ? `${parts[0]} h ${parts[1]} min` : `${parts[1]} min ${parts[2]} s`;
  },
};
