/* Load libcurl with dlopen() on first use, and look up its functions. */
#include "common/data/s3/curl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>

static gp_curl curl;
static gp_status loaded = GP_ESTATE;
static gp_error why;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static gp_status functions_find(gp_error *err)
{
    static const struct {
        const char *name;
        void *slot;
    } functions[] = {
        { "curl_global_init", &curl.global_init },     { "curl_easy_init", &curl.easy_init },
        { "curl_easy_reset", &curl.easy_reset },       { "curl_easy_setopt", &curl.easy_setopt },
        { "curl_easy_perform", &curl.easy_perform },   { "curl_easy_getinfo", &curl.easy_getinfo },
        { "curl_easy_header", &curl.easy_header },     { "curl_easy_cleanup", &curl.easy_cleanup },
        { "curl_easy_strerror", &curl.easy_strerror }, { "curl_version_info", &curl.version_info },
        { "curl_slist_append", &curl.slist_append },   { "curl_slist_free_all", &curl.slist_free_all },
    };
    void *library = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);

    if (library == NULL)
        return gp_fail(err, GP_ENOENT, "cannot load libcurl, which downloads need: %s", dlerror());
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        *(void **)functions[i].slot = dlsym(library, functions[i].name);
        if (*(void **)functions[i].slot == NULL)
            return gp_fail(err, GP_EVERSION, "this libcurl lacks %s", functions[i].name);
    }
    return curl.global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK
               ? GP_OK
               : gp_fail(err, GP_EINTERNAL, "cannot initialize libcurl");
}

gp_status gp_curl_load(const gp_curl **out, gp_error *err)
{
    gp_status status;

    pthread_mutex_lock(&lock);
    if (loaded == GP_ESTATE)
        loaded = functions_find(&why);
    status = loaded;
    pthread_mutex_unlock(&lock);
    if (status != GP_OK)
        return gp_fail(err, status, "%s", why.message);
    *out = &curl;
    return GP_OK;
}

bool gp_curl_is_transient(CURLcode code, long http)
{
    switch (code) {
    case CURLE_OK:
    case CURLE_HTTP_RETURNED_ERROR:
        return http >= 500 || http == 408 || http == 429;
    case CURLE_PARTIAL_FILE:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_SSL_CONNECT_ERROR: /* the connection broke in the handshake */
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
        return true;
    default:
        return false;
    }
}
