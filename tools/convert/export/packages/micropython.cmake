# microtrain {{version}} as a user C module of MicroPython, for its ports that are built by CMake.
set(MICROTRAIN_ENGINE
    micropython/models.c
{{sources}}
)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(arm|cortex)")
    # by the C compiler and with its flags, which say what the core can do
    set(MICROTRAIN_ASSEMBLY
{{assembly}}
    )
endif()
list(TRANSFORM MICROTRAIN_ENGINE PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
list(TRANSFORM MICROTRAIN_ASSEMBLY PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
set_source_files_properties(${MICROTRAIN_ASSEMBLY} PROPERTIES LANGUAGE C)
set_source_files_properties(${MICROTRAIN_ENGINE} PROPERTIES COMPILE_OPTIONS -ffp-contract=off)

add_library(usermod_microtrain INTERFACE)
target_sources(usermod_microtrain INTERFACE
    ${CMAKE_CURRENT_LIST_DIR}/micropython/modmicrotrain.c ${MICROTRAIN_ENGINE} ${MICROTRAIN_ASSEMBLY})
target_include_directories(usermod_microtrain INTERFACE
    ${CMAKE_CURRENT_LIST_DIR}/src ${CMAKE_CURRENT_LIST_DIR}/micropython)
target_link_libraries(usermod INTERFACE usermod_microtrain)
