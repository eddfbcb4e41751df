// SPDX-License-Identifier: Apache-2.0
// The one source that compiles fmt. The others see no more than declarations (fmt/core.h), which spares each
// of them some four seconds; fmt's own library would be one more thing to find where the command runs.
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
namespace detail {
#if FMT_VERSION < 110000
template void vformat_to(buffer<char>&, basic_string_view<char>, basic_format_args<FMT_BUFFER_CONTEXT(char)>,
                         locale_ref);
#endif
template auto thousands_sep_impl<char>(locale_ref) -> thousands_sep_result<char>;
template auto decimal_point_impl(locale_ref) -> char;
}  // namespace detail
FMT_END_NAMESPACE
