#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>

#include "apps/common/command_line.h"
#include "apps/top/view.h"
#include "rondo/base/error.h"
#include "rondo/base/time.h"

namespace {

// Draws a frame over the previous one. Clears the rest of every line, and all lines below the frame.
void draw(const std::vector<std::string>& lines, bool on_terminal) {
  if (on_terminal) std::fputs("\033[H", stdout);
  for (const std::string& line : lines) std::printf("%s%s\n", line.c_str(), on_terminal ? "\033[K" : "");
  if (on_terminal) std::fputs("\033[J", stdout);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Monitors a run: progress, loss and the time of each rank.", "rondo top");
  std::string directory;
  std::string interval = "1s";
  std::string json;
  bool once = false;
  app.add_option("RUN_DIR", directory, "the --run-dir of a 'rondo train', running or ended")->required();
  app.add_option("--interval", interval, "time between updates")->capture_default_str();
  app.add_flag("--once", once, "print the current state once and exit; the default without a terminal");
  app.add_option("--json", json,
                 "write the current state once, as JSON, to FILE, or '-' for standard output");
  app.footer(
      "It ends with the run, or by Ctrl-C. Communication is shown whole, and the part of it that computation "
      "waited for as\n"
      "waiting.\n\n"
      "Examples:\n"
      "  rondo top runs/gpt\n"
      "  rondo top runs/gpt --once --json -");
  return rondo::run_command_line(app, argc, argv, [&] {
    const rondo::Duration pause = rondo::parse_duration(interval, "--interval");
    if (pause < std::chrono::milliseconds(10)) throw rondo::UsageError("--interval must be at least 10ms");
    rondo::RunView run(directory);
    run.refresh();
    if (!json.empty()) {
      rondo::write_json(json, rondo::view_json(run));
      return 0;
    }
    const bool on_terminal = rondo::is_terminal_with_escapes(STDOUT_FILENO);
    if (on_terminal && !once) std::fputs("\033[2J", stdout);
    for (;;) {
      // Checked before refresh(), so that the last frame has everything that the run wrote.
      const bool goes_on = on_terminal && !once && run.is_running();
      run.refresh();
      rondo::TerminalSize size = rondo::terminal_size(STDOUT_FILENO);
      if (!on_terminal) size = {.columns = 4096, .rows = 4096};
      draw(rondo::screen_lines(run, size), on_terminal && !once);
      if (!goes_on) return 0;
      std::this_thread::sleep_for(pause);
    }
  });
}
