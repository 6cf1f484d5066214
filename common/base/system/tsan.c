/* Suppressions for ThreadSanitizer, compiled into the programs: daemons do not inherit the options
 * in a test's environment. Only used in ThreadSanitizer builds. */
const char *__tsan_default_suppressions(void);

/* libzmq is not instrumented, so its lock-free queues look like data races (zeromq/libzmq#3919). */
__attribute__((visibility("default"))) const char *__tsan_default_suppressions(void)
{
    return "called_from_lib:libzmq.so\nrace:libzmq.so\n";
}
