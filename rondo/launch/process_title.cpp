#include "rondo/launch/process_title.h"

#include <sys/prctl.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <sstream>

namespace rondo::launch {

void set_process_title(const std::string& title) {
  prctl(PR_SET_NAME, title.c_str(), 0, 0, 0);
  std::string line;
  std::getline(std::ifstream("/proc/self/stat"), line);
  const std::size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return;
  // Fields 48 and 49 of proc(5): where the arguments begin and end. The first one after the name is number 3.
  std::istringstream fields(line.substr(name_end + 1));
  fields.imbue(std::locale::classic());
  std::string skipped;
  for (int field = 3; field < 48; ++field) fields >> skipped;
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  if (!(fields >> begin >> end) || begin == 0 || end <= begin) return;
  auto* const memory = reinterpret_cast<char*>(begin);
  std::memset(memory, 0, end - begin);
  std::memcpy(memory, title.data(), std::min<std::size_t>(title.size(), end - begin - 1));
}

}  // namespace rondo::launch
