#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/common/command_line.h"
#include "apps/report/page.h"
#include "apps/report/planned_step.h"
#include "rondo/format/file.h"
#include "rondo/format/report/document.h"

int main(int argc, char** argv) {
  CLI::App app(
      "Write one self-contained HTML page about a run: curves, time, memory, timeline, configuration.",
      "rondo report");
  std::string directory;
  std::string output;
  std::string json;
  app.add_option("RUN_DIR", directory, "the --run-dir of a 'rondo train', finished or still running")
      ->required();
  app.add_option("-o,--output", output, "where to write the page; RUN_DIR/report.html when not given");
  app.add_option("--json", json, "write the run's figures to FILE, or '-' for standard output");
  app.footer(
      "The page needs no network and can be sent to others as it is.\n\n"
      "Examples:\n"
      "  rondo report runs/gpt                        writes runs/gpt/report.html\n"
      "  rondo report runs/gpt -o gpt.html --json -   also prints the figures as JSON");
  return rondo::run_command_line(app, argc, argv, [&] {
    const rondo::RunData run = rondo::read_run(directory);
    nlohmann::ordered_json document = rondo::report_document(run);
    std::vector<std::string> notes;
    if (auto planned = rondo::planned_step(run.directory, notes); !planned.is_null())
      document["planned_step"] = std::move(planned);
    for (std::string& note : notes) document["notes"].push_back(std::move(note));
    const std::filesystem::path path =
        output.empty() ? run.directory / "report.html" : std::filesystem::path(output);
    rondo::replace_text_file(path, rondo::make_page(document));
    nlohmann::ordered_json summary = document["summary"];
    summary["report"] = path.string();
    summary["notes"] = document["notes"];
    if (json != "-") {
      for (const auto& note : document["notes"])
        std::fprintf(stderr, "note: %s\n", note.get<std::string>().c_str());
      std::printf("%s\n", path.c_str());
    }
    rondo::write_json(json, summary);
    return 0;
  });
}
