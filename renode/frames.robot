*** Comments ***
Binary frames on the serial line (docs/protocol.md, "Frames"): valid ones, and ones that are broken in each way. The
checksums are those of Python's binascii and zlib. The suite knows no model: it asks for the size of the input.

*** Settings ***
Resource                keywords.resource

*** Variables ***
${ROW}                  1
${WEIGHTS}              2
${DATA}                 3

*** Keywords ***
Boot And Ask For Sizes
    Boot
    ${id}=                      Ask    info    ^id ([0-9a-f]{8})$
    ${input}=                   Wait For Line On Uart    ^input (\\d+)x(\\d+)x(\\d+)$    treatAsRegex=true
    ${trainable}=               Wait For Line On Uart    ^trainable (\\d+)$    treatAsRegex=true
    ${longest}=                 Wait For Line On Uart    ^frame (\\d+)$    treatAsRegex=true
    Wait For Line On Uart       ^ok$    treatAsRegex=true
    ${row_bytes}=               Evaluate    ${input.Groups[1]} * ${input.Groups[2]}
    Set Test Variable           ${MODEL_ID}    ${id.Groups[0]}
    Set Test Variable           ${ROWS}    ${input.Groups[0]}
    Set Test Variable           ${ROW_BYTES}    ${row_bytes}
    Set Test Variable           ${TRAINABLE_BYTES}    ${trainable.Groups[0]}
    Set Test Variable           ${FRAME_MAX}    ${longest.Groups[0]}

Pixels
    [Documentation]    Printable ones: what is left of a broken frame is then text, and no other frame.
    [Arguments]                 ${size}    ${seed}=0
    ${pixels}=                  Evaluate    bytes(33 + (n * 7 + ${seed}) % 90 for n in range(${size}))
    RETURN                      ${pixels}

Frame
    [Arguments]                 ${type}    ${position}    ${payload}    ${sequence}=7
    ${header}=                  Evaluate    struct.pack('<BBBBIH', 0xa5, 0x5a, ${type}, ${sequence}, ${position}, len($payload))    modules=struct
    ${check}=                   Evaluate    struct.pack('<H', binascii.crc_hqx($header, 0xffff))    modules=struct,binascii
    ${end}=                     Evaluate    struct.pack('<I', zlib.crc32($payload))    modules=struct,zlib
    ${frame}=                   Evaluate    $header + $check + $payload + $end
    RETURN                      ${frame}

Put
    [Documentation]    Any bytes, all at once; time stands still afterwards.
    [Arguments]                 ${bytes}
    ${list}=                    Evaluate    list($bytes)
    Execute Command             pause
    FOR    ${byte}    IN    @{list}
        Execute Command             ${UART} WriteChar ${byte}
    END

Send
    [Arguments]                 ${bytes}
    Put                         ${bytes}
    Execute Command             start

Answer To
    [Arguments]                 ${bytes}    ${answer}
    Send                        ${bytes}
    Wait For Line On Uart       ${answer}    treatAsRegex=true

Answer To Frame
    [Arguments]                 ${type}    ${position}    ${payload}    ${answer}
    ${frame}=                   Frame    ${type}    ${position}    ${payload}
    Answer To                   ${frame}    ${answer}

First Row Is Taken
    ${pixels}=                  Pixels    ${ROW_BYTES}
    Answer To Frame             ${ROW}    0    ${pixels}    ^ok row 0 7$

With One Bit Wrong
    [Arguments]                 ${frame}    ${at}
    ${wrong}=                   Evaluate    $frame[:${at}] + bytes([$frame[${at}] ^ 4]) + $frame[${at} + 1:]
    RETURN                      ${wrong}

Rows By Text
    [Documentation]    The rows from one on, as `row` lines of at most 48 bytes.
    [Arguments]                 ${first}
    FOR    ${y}    IN RANGE    ${first}    ${ROWS}
        ${pixels}=                  Pixels    ${ROW_BYTES}    ${y}
        FOR    ${x}    IN RANGE    0    ${ROW_BYTES}    48
            ${part}=                    Evaluate    $pixels[${x}:${x} + 48].hex()
            Ask                         row ${y} ${x} ${part}    ^ok row ${y}$
        END
    END

Logits
    ${logits}=                  Ask    infer    ^logits(( [0-9a-f]{8})+)$
    Wait For Line On Uart       ^ok infer \\d+$    treatAsRegex=true
    RETURN                      ${logits.Groups[0]}

Counted Frames
    [Arguments]                 ${good}    ${bad}
    Ask                         stats    ^frames_ok ${good}$
    Wait For Line On Uart       ^frames_bad ${bad}$    treatAsRegex=true
    Wait For Line On Uart       ^bytes_lost 0$    treatAsRegex=true
    Wait For Line On Uart       ^ok$    treatAsRegex=true

*** Test Cases ***
A Row By Frame Is The Row By Text
    Boot And Ask For Sizes
    Rows By Text                0
    ${by_text}=                 Logits
    First Row Is Taken
    Rows By Text                1
    ${by_frame}=                Logits
    Should Be Equal             ${by_text}    ${by_frame}
    Counted Frames              1    0

The Sequence Number Comes Back
    Boot And Ask For Sizes
    ${pixels}=                  Pixels    ${ROW_BYTES}
    ${frame}=                   Frame    ${ROW}    0    ${pixels}    sequence=201
    Answer To                   ${frame}    ^ok row 0 201$

A Damaged Payload Is Refused And May Be Sent Again
    Boot And Ask For Sizes
    ${pixels}=                  Pixels    ${ROW_BYTES}
    ${frame}=                   Frame    ${ROW}    0    ${pixels}
    ${wrong}=                   With One Bit Wrong    ${frame}    12
    Answer To                   ${wrong}    ^err frame payload CRC is wrong$
    Ask                         infer    ^err image rows missing ${ROWS}$
    Answer To                   ${frame}    ^ok row 0 7$
    Counted Frames              1    1

A Damaged Checksum Is Refused
    Boot And Ask For Sizes
    ${pixels}=                  Pixels    ${ROW_BYTES}
    ${frame}=                   Frame    ${ROW}    0    ${pixels}
    ${last}=                    Evaluate    len($frame) - 1
    ${wrong}=                   With One Bit Wrong    ${frame}    ${last}
    Answer To                   ${wrong}    ^err frame payload CRC is wrong$
    First Row Is Taken

A Damaged Header Is Refused And The Line Recovers
    Boot And Ask For Sizes
    ${pixels}=                  Pixels    ${ROW_BYTES}
    ${frame}=                   Frame    ${ROW}    0    ${pixels}
    FOR    ${at}    IN    2    3    5    8    10    11
        ${wrong}=                   With One Bit Wrong    ${frame}    ${at}
        Answer To                   ${wrong}    ^err frame header CRC is wrong$
        Write To Uart               \n
        Ask                         ping    ^ok pong$
    END
    Ask                         infer    ^err image rows missing ${ROWS}$
    First Row Is Taken

A Frame Behind A Lost Beginning Is Found
    [Documentation]    The first bytes of one frame, and a whole one right behind them.
    Boot And Ask For Sizes
    ${pixels}=                  Pixels    ${ROW_BYTES}
    ${frame}=                   Frame    ${ROW}    0    ${pixels}
    ${both}=                    Evaluate    $frame[:5] + $frame
    Answer To                   ${both}    ^err frame header CRC is wrong$
    Wait For Line On Uart       ^ok row 0 7$    treatAsRegex=true

Rows Of Another Order, Length Or Place Are Refused
    Boot And Ask For Sizes
    ${pixels}=                  Pixels    ${ROW_BYTES}
    Answer To Frame             ${ROW}    1    ${pixels}    ^err frame row is not the next one
    Answer To Frame             ${ROW}    ${ROWS}    ${pixels}    ^err frame row is outside the image$
    ${longer}=                  Pixels    ${ROW_BYTES} + 1
    Answer To Frame             ${ROW}    0    ${longer}    ^err frame length is not that of whole image rows$
    Answer To Frame             ${ROW}    0    ${pixels}    ^ok row 0 7$
    Answer To Frame             ${ROW}    0    ${pixels}    ^ok row 0 7$
    Counted Frames              2    3

A Frame Over The Limit Is Passed Over Whole
    [Documentation]    What is in it would be commands.
    Boot And Ask For Sizes
    ${payload}=                 Evaluate    (b'ping\\n' * ${FRAME_MAX})[:${FRAME_MAX} + 1]
    ${frame}=                   Frame    ${ROW}    0    ${payload}
    Answer To                   ${frame}    ^err frame length is over the limit
    Should Not Be On Uart       pong    timeout=0.3
    First Row Is Taken

A Frame That Stops Is Dropped After Half A Second
    Boot And Ask For Sizes
    ${pixels}=                  Pixels    ${ROW_BYTES}
    ${frame}=                   Frame    ${ROW}    0    ${pixels}
    FOR    ${part}    IN    5    20
        ${begun}=                   Evaluate    $frame[:${part}]
        # Renode's time goes on while a keyword begins: the first part of the wait is exact, the rest has room.
        Put                         ${begun}
        Execute Command             emulation RunFor "0.2"
        Execute Command             start
        Should Not Be On Uart       err    timeout=0.05
        Wait For Line On Uart       ^err frame timeout$    treatAsRegex=true    timeout=0.3
    END
    First Row Is Taken

A Frame That No Host Sends Is Refused
    Boot And Ask For Sizes
    ${pixels}=                  Pixels    ${ROW_BYTES}
    Answer To Frame             ${DATA}    0    ${pixels}    ^err frame type is none that a host sends$
    Answer To Frame             ${WEIGHTS}    0    ${pixels}    ^err frame no push is under way$

A Push That Does Not End Changes Nothing
    Boot And Ask For Sizes
    ${before}=                  Trainables
    ${some}=                    Pixels    16
    ${pixels}=                  Pixels    ${ROW_BYTES}
    Ask                         push 1 00000000 ${MODEL_ID}    ^err push
    Ask                         push ${TRAINABLE_BYTES} 00000000 00000000    ^err push
    Ask                         push ${TRAINABLE_BYTES} 00000000 ${MODEL_ID}    ^ok push$
    Answer To Frame             ${WEIGHTS}    1    ${some}    ^err frame weights are outside the trainables or leave a gap$
    Answer To Frame             ${ROW}    0    ${pixels}    ^err (busy|push)
    Answer To Frame             ${WEIGHTS}    0    ${some}    ^ok weights 0 7$
    Answer To Frame             ${WEIGHTS}    ${TRAINABLE_BYTES}    ${some}    ^err frame weights are outside
    Ask                         reset    ^ok reset$
    ${after}=                   Trainables
    Should Be Equal             ${before}    ${after}
