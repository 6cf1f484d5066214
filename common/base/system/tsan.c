/* tsan.c -- what ThreadSanitizer shall not report, in the programs themselves: a daemon's environment is not the test's.
 * In builds for ThreadSanitizer only. */
const char *__tsan_default_suppressions(void);

/* libzmq is not instrumented: its lock-free queues look like races (zeromq/libzmq#3919). */
__attribute__((visibility("default"))) const char *__tsan_default_suppressions(void)
{
    return "called_from_lib:libzmq.so\nrace:libzmq.so\n";
}
