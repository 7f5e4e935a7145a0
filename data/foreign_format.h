// What people hand over in place of data, told by its first bytes: a web page of a bad mirror, a
// pointer that Git LFS did not replace, an archive that was not unpacked.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace dtrain {

// "an HTML page", "a zip archive", ...; empty if the bytes look like none of these.
std::string_view foreign_format(std::span<const std::byte> head);

}  // namespace dtrain
