/* Access to libcurl. The library is loaded on first use, because it depends on about twenty other
 * libraries and would slow down every program start by milliseconds. */
#ifndef GP_CURL_H
#define GP_CURL_H

#define CURL_DISABLE_TYPECHECK /* the type-checking macros would name the functions directly */
#include <curl/curl.h>

#include <stdbool.h>

#include "common/base/error.h"

/* libcurl functions, looked up by name. */
typedef struct gp_curl {
    CURLcode (*global_init)(long flags);
    CURL *(*easy_init)(void);
    void (*easy_reset)(CURL *handle);
    CURLcode (*easy_setopt)(CURL *handle, CURLoption option, ...);
    CURLcode (*easy_perform)(CURL *handle);
    CURLcode (*easy_getinfo)(CURL *handle, CURLINFO info, ...);
    CURLHcode (*easy_header)(CURL *handle, const char *name, size_t index, unsigned origin, int request,
                             struct curl_header **out);
    void (*easy_cleanup)(CURL *handle);
    curl_version_info_data *(*version_info)(CURLversion now);
    const char *(*easy_strerror)(CURLcode code);
    struct curl_slist *(*slist_append)(struct curl_slist *list, const char *text);
    void (*slist_free_all)(struct curl_slist *list);
} gp_curl;

/* Get the libcurl functions; load and initialize the library once per process. Thread-safe.
 * GP_ENOENT: libcurl is not installed. GP_EVERSION: it is too old. */
gp_status gp_curl_load(const gp_curl **out, gp_error *err);

/* Return whether a transfer that ended with this code and HTTP status may succeed if retried. */
bool gp_curl_is_transient(CURLcode code, long http);

#endif
