// Breakdown of a step's time by rank: the upper bar is the step, the lower bar the communication in flight in it.
function splitCard() {
  const parts = [
    { key: "compute_ms", label: "compute", color: "compute", stack: "step" },
    { key: "exposed_comm_ms", label: "communication that computation waited for", color: "exposed", stack: "step" },
    { key: "overlapped_comm_ms", label: "communication hidden behind compute", color: "overlapped", stack: "comm" },
    { key: "exposed_comm_ms", label: "", color: "exposed", stack: "comm" },
  ];
  card("Step time by rank", "Means over all steps. Upper bar: the step. Lower bar: its communication.",
    (body) => {
      if (run.split.length === 0) {
        body.append(nothing("No split of the step time was recorded."));
        return;
      }
      if (run.straggler) body.append(element("p", {}, `${run.straggler.text.replace(/^rank/, "Rank")}.`));
      body.append(legend(parts.filter((p) => p.label), "block"));
      draw(body, "Mean step time of every rank, split into compute, exposed and hidden communication", () => ({
        type: "bar",
        data: {
          labels: run.split.map((row) => `rank ${row.rank}`),
          datasets: parts.map((part) => ({
            label: part.label || "communication that computation waited for",
            data: run.split.map((row) => row[part.key]),
            backgroundColor: color(part.color),
            stack: part.stack, barThickness: 16, borderRadius: 2,
          })),
        },
        options: {
          indexAxis: "y", animation: false, responsive: true, maintainAspectRatio: false,
          scales: {
            x: axis("Milliseconds", format.number, { axis: { stacked: true, beginAtZero: true }, ticks: { maxTicksLimit: 7 } }),
            y: axis("", (index) => `rank ${run.split[index].rank}`, { axis: { stacked: true, title: { display: false }, grid: { display: false } } }),
          },
          plugins: {
            legend: { display: false },
            tooltip: tooltipStyle({ label: (item) => ` ${item.dataset.label}: ${format.milliseconds(item.parsed.x)}` }),
          },
        },
      }), Math.max(190, 70 + 58 * run.split.length));
      body.append(dataTable(["Rank", "Compute", "Exposed communication", "Hidden communication"], run.split.map((row) =>
        [`rank ${row.rank}`, ...["compute_ms", "exposed_comm_ms", "overlapped_comm_ms"].map((key) =>
          format.milliseconds(row[key]))])));
    });
}
