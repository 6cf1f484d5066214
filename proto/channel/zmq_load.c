/* Load libzmq on its first call instead of at the start of the process.
 *
 * The command `gradpool` links this file in place of libzmq. libzmq and the libraries that it needs
 * (libsodium, libpgm, libnorm, Kerberos, libstdc++) take 1.7 ms to load, more than half of the
 * start time of a command. Commands on files, profiles and jobs of clusters call none of them. The
 * daemons link libzmq itself, because accept.c replaces functions that libzmq calls. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <zmq.h>

/* FUNCTION(result, name, parameters, arguments): the functions of libzmq that proto/ calls */
#define FUNCTIONS                                                                                            \
    FUNCTION(int, zmq_bind, (void *socket, const char *address), (socket, address))                          \
    FUNCTION(int, zmq_close, (void *socket), (socket))                                                       \
    FUNCTION(int, zmq_connect, (void *socket, const char *address), (socket, address))                       \
    FUNCTION(void *, zmq_ctx_new, (void), ())                                                                \
    FUNCTION(int, zmq_ctx_set, (void *context, int option, int value), (context, option, value))             \
    FUNCTION(int, zmq_ctx_term, (void *context), (context))                                                  \
    FUNCTION(int, zmq_curve_keypair, (char *public_key, char *secret_key), (public_key, secret_key))         \
    FUNCTION(int, zmq_curve_public, (char *public_key, const char *secret_key), (public_key, secret_key))    \
    FUNCTION(int, zmq_disconnect, (void *socket, const char *address), (socket, address))                    \
    FUNCTION(int, zmq_getsockopt, (void *socket, int option, void *value, size_t *bytes),                    \
             (socket, option, value, bytes))                                                                 \
    FUNCTION(int, zmq_has, (const char *capability), (capability))                                           \
    FUNCTION(int, zmq_msg_close, (zmq_msg_t * message), (message))                                           \
    FUNCTION(void *, zmq_msg_data, (zmq_msg_t * message), (message))                                         \
    FUNCTION(int, zmq_msg_get, (const zmq_msg_t *message, int property), (message, property))                \
    FUNCTION(const char *, zmq_msg_gets, (const zmq_msg_t *message, const char *property),                   \
             (message, property))                                                                            \
    FUNCTION(int, zmq_msg_init, (zmq_msg_t * message), (message))                                            \
    FUNCTION(int, zmq_msg_init_data,                                                                         \
             (zmq_msg_t * message, void *data, size_t bytes, zmq_free_fn *release, void *hint),              \
             (message, data, bytes, release, hint))                                                          \
    FUNCTION(int, zmq_msg_init_size, (zmq_msg_t * message, size_t bytes), (message, bytes))                  \
    FUNCTION(int, zmq_msg_more, (const zmq_msg_t *message), (message))                                       \
    FUNCTION(int, zmq_msg_move, (zmq_msg_t * to, zmq_msg_t * from), (to, from))                              \
    FUNCTION(int, zmq_msg_recv, (zmq_msg_t * message, void *socket, int flags), (message, socket, flags))    \
    FUNCTION(int, zmq_msg_send, (zmq_msg_t * message, void *socket, int flags), (message, socket, flags))    \
    FUNCTION(size_t, zmq_msg_size, (const zmq_msg_t *message), (message))                                    \
    FUNCTION(int, zmq_poll, (zmq_pollitem_t * items, int count, long timeout_ms),                            \
             (items, count, timeout_ms))                                                                     \
    FUNCTION(int, zmq_send, (void *socket, const void *data, size_t bytes, int flags),                       \
             (socket, data, bytes, flags))                                                                   \
    FUNCTION(int, zmq_setsockopt, (void *socket, int option, const void *value, size_t bytes),               \
             (socket, option, value, bytes))                                                                 \
    FUNCTION(void *, zmq_socket, (void *context, int type), (context, type))                                 \
    FUNCTION(int, zmq_socket_monitor, (void *socket, const char *address, int events),                       \
             (socket, address, events))                                                                      \
    FUNCTION(const char *, zmq_strerror, (int number), (number))                                             \
    FUNCTION(uint8_t *, zmq_z85_decode, (uint8_t * to, const char *text), (to, text))                        \
    FUNCTION(char *, zmq_z85_encode, (char *to, const uint8_t *data, size_t bytes), (to, data, bytes))

/* The functions of the library; zmq_version() returns no value. */
static struct {
#define FUNCTION(result, name, parameters, arguments) result(*name) parameters;
    FUNCTIONS
#undef FUNCTION
    void (*zmq_version)(int *major, int *minor, int *patch);
} functions;

static pthread_once_t loaded = PTHREAD_ONCE_INIT;

/* End the process, with the exit code of the dynamic linker if a library is missing. */
_Noreturn static void fail(void)
{
    fprintf(stderr, "gradpool: cannot load libzmq: %s\n", dlerror());
    _Exit(127);
}

static void find(void *library, const char *name, void *slot)
{
    *(void **)slot = dlsym(library, name);
    if (*(void **)slot == NULL)
        fail();
}

static void load(void)
{
    /* With RTLD_NOW, each command would look up all functions of Kerberos, PGM and the other
     * libraries that libzmq needs; that takes 0.5 ms. */
    void *library = dlopen("libzmq.so.5", RTLD_LAZY | RTLD_LOCAL);

    if (library == NULL)
        fail();
#define FUNCTION(result, name, parameters, arguments) find(library, #name, &functions.name);
    FUNCTIONS
#undef FUNCTION
    find(library, "zmq_version", &functions.zmq_version);
}

#define FUNCTION(result, name, parameters, arguments)                                                        \
    result name parameters                                                                                   \
    {                                                                                                        \
        pthread_once(&loaded, load);                                                                         \
        return functions.name arguments;                                                                     \
    }
FUNCTIONS

void zmq_version(int *major, int *minor, int *patch)
{
    pthread_once(&loaded, load);
    functions.zmq_version(major, minor, patch);
}
