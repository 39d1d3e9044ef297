#include "rondo/format/metrics_tail.h"

#include <sys/stat.h>

#include <algorithm>
#include <string_view>

#include "rondo/base/error.h"
#include "rondo/base/regular_file.h"
#include "rondo/base/text.h"

namespace rondo {

MetricsTail::News MetricsTail::read() {
  struct stat now {};
  if (::stat(path_.c_str(), &now) != 0) return {};
  // A pipe has no size: it would look like a run without steps.
  if (!S_ISREG(now.st_mode)) {
    throw DataError(str("cannot read ", path_.string(), ": it is ", kind_of_file(now.st_mode),
                        ", expected a regular file"));
  }
  News news;
  if (now.st_ino != inode_ || static_cast<std::uint64_t>(now.st_size) < read_bytes_) {
    news.from_the_start = inode_ != 0;
    inode_ = now.st_ino;
    read_bytes_ = 0;
  }
  if (static_cast<std::uint64_t>(now.st_size) == read_bytes_) return news;
  const MappedFile file(path_);
  std::string_view rest(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  rest.remove_prefix(std::min<std::size_t>(read_bytes_, rest.size()));
  for (std::size_t end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
    try {
      if (auto row = parse_metrics_line(rest.substr(0, end))) news.rows.push_back(std::move(*row));
    } catch (const std::exception&) {
      // `rondo report` names damaged lines; who watches a run wants its next row.
    }
    rest.remove_prefix(end + 1);
    read_bytes_ += end + 1;
  }
  return news;
}

}  // namespace rondo
