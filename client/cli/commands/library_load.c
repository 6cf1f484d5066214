/* Load libraries on the first call of one of their functions, not at the start of the process.
 *
 * The command `gradpool` links this file in place of the libraries. libzmq and the libraries that
 * it needs (libsodium, libpgm, libnorm, Kerberos, libstdc++) take 1.7 ms to load, more than half of
 * the start time of a command, and the others 0.3 ms. Commands on profiles and jobs of clusters
 * call none of them. The daemons link the libraries themselves: they need most of them, and
 * accept.c replaces functions that libzmq calls. */
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <jpeglib.h>
#include <md5.h>
#include <png.h>
#include <protobuf-c/protobuf-c.h>
#include <sha2.h>
#include <zlib.h>
#include <zmq.h>

/* The functions that gradpool calls: FUNCTION(library, result, name, parameters, arguments), and
 * PROCEDURE(library, name, parameters, arguments) without a result. */
#define ZMQ_FUNCTIONS                                                                                        \
    FUNCTION(zmq, int, zmq_bind, (void *socket, const char *address), (socket, address))                     \
    FUNCTION(zmq, int, zmq_close, (void *socket), (socket))                                                  \
    FUNCTION(zmq, int, zmq_connect, (void *socket, const char *address), (socket, address))                  \
    FUNCTION(zmq, void *, zmq_ctx_new, (void), ())                                                           \
    FUNCTION(zmq, int, zmq_ctx_set, (void *context, int option, int value), (context, option, value))        \
    FUNCTION(zmq, int, zmq_ctx_term, (void *context), (context))                                             \
    FUNCTION(zmq, int, zmq_curve_keypair, (char *public_key, char *secret_key), (public_key, secret_key))    \
    FUNCTION(zmq, int, zmq_curve_public, (char *public_key, const char *secret_key),                         \
             (public_key, secret_key))                                                                       \
    FUNCTION(zmq, int, zmq_disconnect, (void *socket, const char *address), (socket, address))               \
    FUNCTION(zmq, int, zmq_getsockopt, (void *socket, int option, void *value, size_t *bytes),               \
             (socket, option, value, bytes))                                                                 \
    FUNCTION(zmq, int, zmq_has, (const char *capability), (capability))                                      \
    FUNCTION(zmq, int, zmq_msg_close, (zmq_msg_t * message), (message))                                      \
    FUNCTION(zmq, void *, zmq_msg_data, (zmq_msg_t * message), (message))                                    \
    FUNCTION(zmq, int, zmq_msg_get, (const zmq_msg_t *message, int property), (message, property))           \
    FUNCTION(zmq, const char *, zmq_msg_gets, (const zmq_msg_t *message, const char *property),              \
             (message, property))                                                                            \
    FUNCTION(zmq, int, zmq_msg_init, (zmq_msg_t * message), (message))                                       \
    FUNCTION(zmq, int, zmq_msg_init_data,                                                                    \
             (zmq_msg_t * message, void *data, size_t bytes, zmq_free_fn *release, void *hint),              \
             (message, data, bytes, release, hint))                                                          \
    FUNCTION(zmq, int, zmq_msg_init_size, (zmq_msg_t * message, size_t bytes), (message, bytes))             \
    FUNCTION(zmq, int, zmq_msg_more, (const zmq_msg_t *message), (message))                                  \
    FUNCTION(zmq, int, zmq_msg_move, (zmq_msg_t * to, zmq_msg_t * from), (to, from))                         \
    FUNCTION(zmq, int, zmq_msg_recv, (zmq_msg_t * message, void *socket, int flags),                         \
             (message, socket, flags))                                                                       \
    FUNCTION(zmq, int, zmq_msg_send, (zmq_msg_t * message, void *socket, int flags),                         \
             (message, socket, flags))                                                                       \
    FUNCTION(zmq, size_t, zmq_msg_size, (const zmq_msg_t *message), (message))                               \
    FUNCTION(zmq, int, zmq_poll, (zmq_pollitem_t * items, int count, long timeout_ms),                       \
             (items, count, timeout_ms))                                                                     \
    FUNCTION(zmq, int, zmq_send, (void *socket, const void *data, size_t bytes, int flags),                  \
             (socket, data, bytes, flags))                                                                   \
    FUNCTION(zmq, int, zmq_setsockopt, (void *socket, int option, const void *value, size_t bytes),          \
             (socket, option, value, bytes))                                                                 \
    FUNCTION(zmq, void *, zmq_socket, (void *context, int type), (context, type))                            \
    FUNCTION(zmq, int, zmq_socket_monitor, (void *socket, const char *address, int events),                  \
             (socket, address, events))                                                                      \
    FUNCTION(zmq, const char *, zmq_strerror, (int number), (number))                                        \
    PROCEDURE(zmq, zmq_version, (int *major, int *minor, int *patch), (major, minor, patch))                 \
    FUNCTION(zmq, uint8_t *, zmq_z85_decode, (uint8_t * to, const char *text), (to, text))                   \
    FUNCTION(zmq, char *, zmq_z85_encode, (char *to, const uint8_t *data, size_t bytes), (to, data, bytes))

#define JPEG_FUNCTIONS                                                                                       \
    PROCEDURE(jpeg, jpeg_CreateDecompress, (j_decompress_ptr info, int version, size_t bytes),               \
              (info, version, bytes))                                                                        \
    PROCEDURE(jpeg, jpeg_abort_decompress, (j_decompress_ptr info), (info))                                  \
    PROCEDURE(jpeg, jpeg_crop_scanline, (j_decompress_ptr info, JDIMENSION * left, JDIMENSION * width),      \
              (info, left, width))                                                                           \
    PROCEDURE(jpeg, jpeg_destroy_decompress, (j_decompress_ptr info), (info))                                \
    PROCEDURE(jpeg, jpeg_mem_src, (j_decompress_ptr info, const unsigned char *data, unsigned long bytes),   \
              (info, data, bytes))                                                                           \
    FUNCTION(jpeg, int, jpeg_read_header, (j_decompress_ptr info, boolean image), (info, image))             \
    FUNCTION(jpeg, JDIMENSION, jpeg_read_scanlines,                                                          \
             (j_decompress_ptr info, JSAMPARRAY lines, JDIMENSION count), (info, lines, count))              \
    FUNCTION(jpeg, JDIMENSION, jpeg_skip_scanlines, (j_decompress_ptr info, JDIMENSION count),               \
             (info, count))                                                                                  \
    FUNCTION(jpeg, boolean, jpeg_start_decompress, (j_decompress_ptr info), (info))                          \
    FUNCTION(jpeg, struct jpeg_error_mgr *, jpeg_std_error, (struct jpeg_error_mgr * manager), (manager))

#define PNG_FUNCTIONS                                                                                        \
    FUNCTION(png, png_infop, png_create_info_struct, (png_const_structrp png), (png))                        \
    FUNCTION(png, png_structp, png_create_read_struct,                                                       \
             (png_const_charp version, png_voidp context, png_error_ptr on_error, png_error_ptr on_warning), \
             (version, context, on_error, on_warning))                                                       \
    PROCEDURE(png, png_destroy_read_struct, (png_structpp png, png_infopp info, png_infopp end),             \
              (png, info, end))                                                                              \
    FUNCTION(png, png_byte, png_get_bit_depth, (png_const_structrp png, png_const_inforp info), (png, info)) \
    FUNCTION(png, png_byte, png_get_color_type, (png_const_structrp png, png_const_inforp info),             \
             (png, info))                                                                                    \
    FUNCTION(png, png_voidp, png_get_error_ptr, (png_const_structrp png), (png))                             \
    FUNCTION(png, png_uint_32, png_get_image_height, (png_const_structrp png, png_const_inforp info),        \
             (png, info))                                                                                    \
    FUNCTION(png, png_uint_32, png_get_image_width, (png_const_structrp png, png_const_inforp info),         \
             (png, info))                                                                                    \
    FUNCTION(png, png_voidp, png_get_io_ptr, (png_const_structrp png), (png))                                \
    FUNCTION(png, size_t, png_get_rowbytes, (png_const_structrp png, png_const_inforp info), (png, info))    \
    FUNCTION(png, int, png_image_write_to_memory,                                                            \
             (png_imagep image, void *to, png_alloc_size_t *bytes, int convert, const void *from,            \
              png_int_32 stride, const void *colors),                                                        \
             (image, to, bytes, convert, from, stride, colors))                                              \
    PROCEDURE(png, png_read_info, (png_structrp png, png_inforp info), (png, info))                          \
    PROCEDURE(png, png_read_row, (png_structrp png, png_bytep row, png_bytep display), (png, row, display))  \
    PROCEDURE(png, png_read_update_info, (png_structrp png, png_inforp info), (png, info))                   \
    PROCEDURE(png, png_set_chunk_malloc_max, (png_structrp png, png_alloc_size_t bytes), (png, bytes))       \
    PROCEDURE(png, png_set_expand_gray_1_2_4_to_8, (png_structrp png), (png))                                \
    PROCEDURE(png, png_set_gray_to_rgb, (png_structrp png), (png))                                           \
    FUNCTION(png, int, png_set_interlace_handling, (png_structrp png), (png))                                \
    PROCEDURE(png, png_set_keep_unknown_chunks,                                                              \
              (png_structrp png, int keep, png_const_bytep chunks, int count), (png, keep, chunks, count))   \
    PROCEDURE(png, png_set_packing, (png_structrp png), (png))                                               \
    PROCEDURE(png, png_set_palette_to_rgb, (png_structrp png), (png))                                        \
    PROCEDURE(png, png_set_read_fn, (png_structrp png, png_voidp context, png_rw_ptr read),                  \
              (png, context, read))                                                                          \
    PROCEDURE(png, png_set_scale_16, (png_structrp png), (png))                                              \
    PROCEDURE(png, png_set_strip_alpha, (png_structrp png), (png))                                           \
    PROCEDURE(png, png_set_user_limits, (png_structrp png, png_uint_32 width, png_uint_32 height),           \
              (png, width, height))

#define ZLIB_FUNCTIONS                                                                                       \
    FUNCTION(zlib, int, gzbuffer, (gzFile file, unsigned bytes), (file, bytes))                              \
    FUNCTION(zlib, int, gzclose, (gzFile file), (file))                                                      \
    FUNCTION(zlib, int, gzdirect, (gzFile file), (file))                                                     \
    FUNCTION(zlib, gzFile, gzdopen, (int fd, const char *mode), (fd, mode))                                  \
    FUNCTION(zlib, const char *, gzerror, (gzFile file, int *number), (file, number))                        \
    FUNCTION(zlib, int, gzread, (gzFile file, voidp to, unsigned bytes), (file, to, bytes))                  \
    FUNCTION(zlib, int, gzwrite, (gzFile file, voidpc from, unsigned bytes), (file, from, bytes))

#define MD_FUNCTIONS                                                                                         \
    FUNCTION(md, char *, MD5File, (const char *path, char *text), (path, text))                              \
    FUNCTION(md, char *, SHA256End, (SHA2_CTX * hash, char *text), (hash, text))                             \
    FUNCTION(md, char *, SHA256File, (const char *path, char *text), (path, text))                           \
    PROCEDURE(md, SHA256Final, (uint8_t digest[SHA256_DIGEST_LENGTH], SHA2_CTX * hash), (digest, hash))      \
    PROCEDURE(md, SHA256Init, (SHA2_CTX * hash), (hash))                                                     \
    PROCEDURE(md, SHA256Update, (SHA2_CTX * hash, const uint8_t *data, size_t bytes), (hash, data, bytes))

#define PROTOBUF_FUNCTIONS                                                                                   \
    FUNCTION(protobuf, const ProtobufCFieldDescriptor *, protobuf_c_message_descriptor_get_field,            \
             (const ProtobufCMessageDescriptor *message, unsigned value), (message, value))                  \
    PROCEDURE(protobuf, protobuf_c_message_free_unpacked,                                                    \
              (ProtobufCMessage * message, ProtobufCAllocator * allocator), (message, allocator))            \
    FUNCTION(protobuf, size_t, protobuf_c_message_get_packed_size, (const ProtobufCMessage *message),        \
             (message))                                                                                      \
    FUNCTION(protobuf, size_t, protobuf_c_message_pack, (const ProtobufCMessage *message, uint8_t *to),      \
             (message, to))                                                                                  \
    FUNCTION(protobuf, size_t, protobuf_c_message_pack_to_buffer,                                            \
             (const ProtobufCMessage *message, ProtobufCBuffer *to), (message, to))                          \
    FUNCTION(protobuf, ProtobufCMessage *, protobuf_c_message_unpack,                                        \
             (const ProtobufCMessageDescriptor *message, ProtobufCAllocator *allocator, size_t bytes,        \
              const uint8_t *data),                                                                          \
             (message, allocator, bytes, data))

#define ALL_FUNCTIONS                                                                                        \
    JPEG_FUNCTIONS MD_FUNCTIONS PNG_FUNCTIONS PROTOBUF_FUNCTIONS ZLIB_FUNCTIONS ZMQ_FUNCTIONS

/* libjpeg-turbo has one of two interfaces: that of version 6b, or on Ubuntu that of version 8. */
#define JPEG_FILE (JPEG_LIB_VERSION >= 80 ? "libjpeg.so.8" : "libjpeg.so.62")

static struct {
#define FUNCTION(library, result, name, parameters, arguments) result(*name) parameters;
#define PROCEDURE(library, name, parameters, arguments)        void(*name) parameters;
    ALL_FUNCTIONS
#undef FUNCTION
#undef PROCEDURE
} functions;

/* End the process, with the exit code of the dynamic linker if a library is missing. */
_Noreturn static void fail(void)
{
    fprintf(stderr, "gradpool: cannot load a library: %s\n", dlerror());
    _Exit(127);
}

static void *library_open(const char *file)
{
    /* With RTLD_NOW, each command would look up all functions of Kerberos, PGM and the other
     * libraries that libzmq needs; that takes 0.5 ms. */
    void *library = dlopen(file, RTLD_LAZY | RTLD_LOCAL);

    if (library == NULL)
        fail();
    return library;
}

static void find(void *library, const char *name, void *slot)
{
    *(void **)slot = dlsym(library, name);
    if (*(void **)slot == NULL)
        fail();
}

#define FUNCTION(library, result, name, parameters, arguments) find(file, #name, &functions.name);
#define PROCEDURE(library, name, parameters, arguments)        find(file, #name, &functions.name);
#define LIBRARY(name, path, NAMES)                                                                           \
    static pthread_once_t name##_loaded = PTHREAD_ONCE_INIT;                                                 \
                                                                                                             \
    static void name##_load(void)                                                                            \
    {                                                                                                        \
        void *file = library_open(path);                                                                     \
                                                                                                             \
        NAMES                                                                                                \
    }

LIBRARY(jpeg, JPEG_FILE, JPEG_FUNCTIONS)
LIBRARY(md, "libmd.so.0", MD_FUNCTIONS)
LIBRARY(png, "libpng16.so.16", PNG_FUNCTIONS)
LIBRARY(protobuf, "libprotobuf-c.so.1", PROTOBUF_FUNCTIONS)
LIBRARY(zlib, "libz.so.1", ZLIB_FUNCTIONS)
LIBRARY(zmq, "libzmq.so.5", ZMQ_FUNCTIONS)
#undef FUNCTION
#undef PROCEDURE

#define FUNCTION(library, result, name, parameters, arguments)                                               \
    result name parameters                                                                                   \
    {                                                                                                        \
        pthread_once(&library##_loaded, library##_load);                                                     \
        return functions.name arguments;                                                                     \
    }
#define PROCEDURE(library, name, parameters, arguments)                                                      \
    void name parameters                                                                                     \
    {                                                                                                        \
        pthread_once(&library##_loaded, library##_load);                                                     \
        functions.name arguments;                                                                            \
    }

ALL_FUNCTIONS
