// Numbers for people.
const format = {
  integer: (value) => Math.round(value).toLocaleString("en-US"),
  number: (value) => {
    if (value === 0) return "0";
    const size = Math.abs(value);
    if (size >= 1e6 || size < 1e-4) {
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
  // No more digits than a clock on a busy machine can vouch for: hundredths at the most.
  milliseconds: (value) => {
    const size = Math.abs(value);
    if (size > 0 && size < 0.005) return "< 0.01 ms";
    const rounded = Number(value.toFixed(size < 10 ? 2 : size < 100 ? 1 : 0));
    return `${rounded >= 1000 ? format.integer(rounded) : rounded} ms`;
  },
  percent: (value) => {
    if (Math.abs(value) < 5e-6) return "0 %";  // what additions in another order come to
    return `${Number((100 * value).toPrecision(2))} %`;
  },
  // A metric that is a share: "25 %", "99.1 %".
  share: (value) => `${Number((100 * value).toPrecision(3))} %`,
  // "826 thousand", "1.24 billion".
  count: (value) => {
    const [size, unit] = [[1e12, " trillion"], [1e9, " billion"], [1e6, " million"], [1e4, " thousand"]].find(([least]) => value >= least) || [1, ""];
    return unit ? `${Number((value / (unit === " thousand" ? 1000 : size)).toPrecision(3))}${unit}` : format.integer(value);
  },
  // "2026-11-22 16:24 UTC" of "2026-11-22T16:24:40Z"; what is no such time stays as it is.
  moment: (text) => text.replace(/^(\d{4}-\d\d-\d\d)T(\d\d:\d\d):\d\dZ$/, "$1 $2 UTC"),
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
