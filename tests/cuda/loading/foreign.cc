// A library with the plugin's name that is unrelated to Muster.
extern "C" int what_nobody_asks_for() { return 0; }
