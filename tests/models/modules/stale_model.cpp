// A module as built with another libtorch, which its stamp names.
extern "C" {
[[gnu::used]] const char stale_stamp[] = "rondo model module 1|rondo 0.0.1|libtorch 1.0.0|";
[[gnu::constructor]] void must_not_run() { __builtin_trap(); }
}
