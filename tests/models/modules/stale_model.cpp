// A module as another libtorch would have made it: its stamp is in it, and names that one.
extern "C" {
[[gnu::used]] const char stale_stamp[] = "rondo model module 1|rondo 0.0.1|libtorch 1.0.0|";
[[gnu::constructor]] void must_not_run() { __builtin_trap(); }
}
