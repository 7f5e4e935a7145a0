#include "dtrain/data/foreign_format.h"

namespace dtrain {

std::string_view foreign_format(std::span<const std::byte> head) {
  std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  if (text.starts_with("PK\x03\x04")) return "a zip archive";
  if (text.starts_with("\x1F\x8B")) return "gzip";
  if (text.starts_with("\xFD"
                       "7zXZ")) {
    return "xz";
  }
  if (text.starts_with("\x93NUMPY")) return "a NumPy array";
  if (text.starts_with("version https:/")) return "a Git LFS pointer";
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  while (!text.empty() && (text[0] == ' ' || text[0] == '\n' || text[0] == '\r')) {
    text.remove_prefix(1);
  }
  for (const std::string_view page : {"<!DO", "<!do", "<htm", "<HTM", "<?xm"}) {
    if (text.starts_with(page)) return "an HTML page";
  }
  return {};
}

}  // namespace dtrain
